# Of Cargo.lock and what `cargo tree` prints, a CycloneDX document; see sbom.sh.

function text(value) {
    gsub(/\\/, "\\\\", value)
    gsub(/"/, "\\\"", value)
    return "\"" value "\""
}

# One component. Its end is left open for more fields.
function component(type, ref, name, version) {
    return "\"type\":" text(type) ",\"bom-ref\":" text(ref) ",\"name\":" text(name) \
        ",\"version\":" text(version) ",\"purl\":" text(ref)
}

function hash(value) {
    return value == "" ? "" : ",\"hashes\":[{\"alg\":\"SHA-256\",\"content\":" text(value) "}]"
}

# As SPDX has it: older crates part licences by a stroke.
function licence(value) {
    gsub(/ *\/ */, " OR ", value)
    return value == "" ? "" : ",\"licenses\":[{\"expression\":" text(value) "}]"
}

function home(url) {
    return url == "" ? "" : ",\"externalReferences\":[{\"type\":\"vcs\",\"url\":" text(url) "}]"
}

function needs(ref, other) {
    if (!((ref, other) in edges)) {
        edges[ref, other]
        depends[ref] = depends[ref] (depends[ref] == "" ? "" : ",") text(other)
    }
}

# Cargo.lock: the sum of each package.
FNR == NR {
    if ($1 == "name") name = $3
    if ($1 == "version") version = $3
    if ($1 == "checksum") {
        key = name "@" version
        gsub(/"/, "", key)
        sums[key] = substr($3, 2, length($3) - 2)
    }
    next
}

# The tree.
{
    split($0, fields, "|")
    split(fields[2], words, " ")
    name = words[1]
    version = substr(words[2], 2)
    ref = "pkg:cargo/" name "@" version
    gsub(/\+/, "%2B", ref)
    depth = fields[1] + 0
    above[depth] = ref
    if (depth > 0) needs(above[depth - 1], ref)
    sub(/ \(\*\)$/, "", fields[3])
    sub(/ \(\*\)$/, "", fields[4])
    if (ref in seen) next
    seen[ref]
    if (depth == 0) {
        root = ref
        program = component("application", ref, name, version) hash(sum) licence(fields[3])
    } else {
        refs[++count] = ref
        components[count] = component("library", ref, name, version) hash(sums[name "@" version]) \
            licence(fields[3]) home(fields[4])
    }
}

END {
    std = "pkg:generic/rust-std@" rust
    refs[++count] = std
    components[count] = component("library", std, "rust-std", rust) licence("MIT OR Apache-2.0")
    needs(root, std)
    glibc = "pkg:generic/glibc@" libc
    refs[++count] = glibc
    components[count] = component("library", glibc, "glibc", libc) licence("LGPL-2.1-or-later")
    needs(std, glibc)

    print "{\"bomFormat\":\"CycloneDX\",\"specVersion\":\"1.5\",\"version\":1,"
    print "\"metadata\":{\"component\":{" program "}},"
    print "\"components\":["
    for (at = 1; at <= count; at++) print "{" components[at] "}" (at < count ? "," : "")
    print "],"
    print "\"dependencies\":["
    for (at = 1; at <= count; at++) {
        print "{\"ref\":" text(refs[at]) ",\"dependsOn\":[" depends[refs[at]] "]},"
    }
    print "{\"ref\":" text(root) ",\"dependsOn\":[" depends[root] "]}"
    print "]}"
}
