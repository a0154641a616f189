#!/usr/bin/env bash
# Counts the program's Rust code by module: lines, types, ports, repeated type names, long files.
#
#     tests/size.sh [FOLDER]
#
# Code is every line of `src` and `crates` that is not blank, a comment, or part of a `#[cfg(test)]` item.
# A module is a folder or file of `src`, or a crate. A type is a struct, an enum or a union. A port is a
# trait with one implementation.
# A file is long above 400 lines, tests and comments included. Relies on rustfmt's indentation.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"
export LC_ALL=C

folders=(src)
for crate in crates/*/; do
    if [ -d "$crate/src" ] && [ "$crate" != crates/testbed/ ]; then folders+=("${crate}src"); fi
done
mapfile -t files < <(find "${folders[@]}" -name '*.rs' | sort)

# awk reads all files twice: first to find the files of test modules, then to count the others.
awk '
function indent(line) { match(line, /^ */); return RLENGTH }

# The folder of the modules that `file` declares.
function modules_of(file) {
    if (file ~ /\/(mod|lib|main)\.rs$/) { sub(/\/[^\/]*$/, "", file) } else { sub(/\.rs$/, "", file) }
    return file
}

function is_test_file(file, folder) {
    if (file in test_file) return 1
    for (folder in test_folder) if (index(file, folder "/") == 1) return 1
    return 0
}

# Whether the line belongs to a `#[cfg(test)]` item. Such an item ends on its first line, or at the closing
# brace with the indentation of its first line.
function is_test_line(line, name) {
    if (FNR == 1) { state = "code" }
    if (state == "code") {
        if (line !~ /^ *#\[cfg\((all\()?test[,)]/) return 0
        state = "attributes"
        return 1
    }
    if (state == "attributes") {
        if (line ~ /^ *(#\[|\/\/)/) return 1
        depth = indent(line)
        if (line ~ /^ *(pub(\([^)]*\))? )?mod [a-z0-9_]+;/) {
            name = line
            sub(/^ *(pub(\([^)]*\))? )?mod /, "", name)
            sub(/;.*/, "", name)
            test_folder[modules_of(FILENAME) "/" name]
            test_file[modules_of(FILENAME) "/" name ".rs"]
        }
        state = line ~ /[;,}]$/ ? "code" : "item"
        return 1
    }
    if (indent(line) == depth && line ~ /^ *[\])}]+[;,]?$/) state = "code"
    return 1
}

# `line` without its leading generics.
function without_generics(line, at, level, c) {
    if (line !~ /^</) return line
    for (at = 1; at <= length(line); at++) {
        c = substr(line, at, 1)
        if (c == "<") level++
        if (c == ">" && substr(line, at - 1, 1) !~ /[-=]/ && --level == 0) return substr(line, at + 1)
    }
    return ""
}

function module_of(file, part) {
    split(file, part, "/")
    sub(/\.rs$/, "", part[2])
    return part[1] "/" part[2]
}

function count_item(module, line, name, rest) {
    sub(/^ +/, "", line)
    rest = line
    sub(/^pub(\([^)]*\))? /, "", rest)
    sub(/^unsafe /, "", rest)
    if (rest ~ /^(struct|enum|union|trait) [A-Z]/) {
        name = rest
        sub(/^[a-z]+ /, "", name)
        sub(/[^A-Za-z0-9_].*/, "", name)
        definitions[name]++
        if (rest ~ /^trait /) trait_in[name] = module; else types[module]++
    } else if (rest ~ /^impl[ <]/) {
        sub(/^impl/, "", rest)
        rest = without_generics(rest)
        if (rest !~ / for /) return
        sub(/ for .*/, "", rest)
        sub(/<.*/, "", rest)
        sub(/.*::/, "", rest)
        gsub(/[^A-Za-z0-9_]/, "", rest)
        implementations[rest]++
    }
}

FNR == 1 && ++opened > files { counting = 1 }
!counting { is_test_line($0); next }

FNR == 1 { in_test_file = is_test_file(FILENAME) }
{ length_of[FILENAME] = FNR }
in_test_file || is_test_line($0) || /^ *$/ || /^ *\/\// { next }
{
    module = module_of(FILENAME)
    lines[module]++
    count_item(module, $0)
}

END {
    for (file in length_of) if (length_of[file] > 400) long[module_of(file)]++
    for (name in trait_in) if (implementations[name] == 1) { ports[trait_in[name]]++; port[name] }
    for (name in definitions) if (definitions[name] > 1) repeated[name]
    printf "%-20s %7s %7s %7s %7s\n", "module", "lines", "types", "ports", ">400"
    row = "%-20s %7d %7d %7d %7d\n"
    sorted = "sort"
    for (module in lines) {
        printf row, module, lines[module], types[module], ports[module], long[module] | sorted
        all_lines += lines[module]; all_types += types[module]
        all_ports += ports[module]; all_long += long[module]
    }
    close(sorted)
    printf row, "total", all_lines, all_types, all_ports, all_long
    list("ports", port)
    list("repeated type names", repeated)
}

function list(title, names, name, count) {
    for (name in names) count++
    printf "\n%d %s\n", count, title
    sorted = "sort | paste -sd \" \" | fold -s -w 100"
    for (name in names) print name | sorted
    close(sorted)
}
' files="${#files[@]}" "${files[@]}" "${files[@]}"
