#!/usr/bin/env bash
# kubewarm on a real API server, from nothing: `make demo`. It runs until Ctrl-C, and with DEMO_EXIT=1 it
# ends after the summary. With DEMO_BIN=FOLDER it runs the programs in that folder.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly parts=4000 writers=10 profile_file=tests/demo/profile.yaml

headline() { printf '\n\e[1m%s\e[0m\n' "$*"; }
# Prints a command as a user would type it, and runs it.
run() {
    printf '\e[1m$ %s\e[0m\n' "$*"
    "$@"
}

# Prints the path of an installed kubectl of a Kubernetes version that kubewarm supports, which is 1.32 or newer. Each
# has the demo's few commands, also where Kubernetes' own version skew policy rejects the pair. A build of kubectl
# takes 40 s of processor time.
installed_kubectl() {
    local minor
    minor=$(kubectl version --client --output=json 2>/dev/null | sed -n 's/.*"minor": "\([0-9]*\).*/\1/p') || true
    ((${minor:-0} >= 32)) && command -v kubectl
}
kubectl=()
if installed=$(installed_kubectl); then kubectl=(--kubectl "$installed"); fi

# `testbed up` builds the control plane. Cargo often uses only one core, so Go compiles the packages meanwhile.
compile_control_plane() {
    cd tests/controlplane
    # This command compiles without linking, because `testbed up` links again, with its own flags.
    CGO_ENABLED=0 GOWORK=off go list -trimpath -export -deps "$@" >/dev/null
}
is_cached() { compgen -G "${KUBEWARM_CACHE:-$HOME/.cache/kubewarm}/$1-*/" >/dev/null; }
if [[ -z ${DEMO_BIN:-} ]]; then
    echo 'Building kubewarm and the control plane; the first time this takes some minutes.'
    packages=()
    is_cached kubecp || packages+=(./cmd/kubecp)
    ((${#kubectl[@]})) || is_cached kubectl || packages+=(k8s.io/kubernetes/cmd/kubectl)
    ! ((${#packages[@]})) || compile_control_plane "${packages[@]}" 2>/dev/null &
    cargo build --locked --quiet --profile demo -p kubewarm -p testbed
    wait
fi
bin=$(realpath "${DEMO_BIN:-${CARGO_TARGET_DIR:-target}/demo}")
work=$(mktemp -d)
readonly bin work
operator=''
clean_up() {
    local code=$?
    if [[ -n $operator ]]; then
        kill "$operator" 2>/dev/null || true
        wait "$operator" 2>/dev/null || true
    fi
    [[ ! -d $work/cluster ]] || "$bin/testbed" down --dir "$work/cluster"
    rm -rf "$work"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

echo "Starting an API server and creating $parts objects, which takes about 30 seconds."
"$bin/testbed" up --dir "$work/cluster" "${kubectl[@]}" >"$work/testbed.log" || { cat "$work/testbed.log" >&2; exit 1; }
export KUBECONFIG=$work/cluster/admin.kubeconfig KUBECACHEDIR=$work/cluster/kubectl-cache
# The messages of the commands name the kubectl plugin, which is the same program.
mkdir "$work/plugin"
ln -s "$bin/kubewarm" "$work/plugin/kubectl-warm"
export PATH=$work/plugin:$bin:$work/cluster/bin:$PATH KUBEWARM_OPERATOR_NAMESPACE=kubewarm-system
server=$(kubectl get --raw /version | sed -n 's/.*"gitVersion": "\([^"]*\).*/\1/p')

# A definition that is a moment old has no conditions yet, which is an error to kubectl.
await_definition() {
    local attempt
    for attempt in {1..10}; do
        kubectl wait --for=condition=Established "crd/$1" >/dev/null 2>&1 && return
        sleep 1
    done
    kubectl wait --for=condition=Established "crd/$1" >/dev/null
}
kubectl apply -f tests/demo/world.yaml >/dev/null
await_definition parts.factory.example.com

# One kubectl creates about 50 objects per second, so several share the work.
write_parts() {
    local number materials=(steel brass nylon)
    for ((number = $1; number < parts; number += writers)); do
        printf '{"apiVersion":"factory.example.com/v1","kind":"Part","metadata":{"name":"part-%05d",' "$number"
        printf '"namespace":"factory","labels":{"material":"%s"}},' "${materials[number % 3]}"
        printf '"spec":{"material":"%s","weightGrams":%d,"bin":"B%03d"}}\n' \
            "${materials[number % 3]}" $((number % 900 + 5)) $((number % 250))
    done | kubectl create --validate=false -f - >/dev/null
}
jobs=()
for ((writer = 0; writer < writers; writer++)); do
    write_parts "$writer" &
    jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job"; done

# kubewarm reads profiles and reviews its clients, and may read nothing else.
kubectl apply -f crds/kubewarm.io_cacheprofiles.yaml -f deploy/operator-rbac.yaml -f deploy/read-api.yaml >/dev/null
await_definition cacheprofiles.kubewarm.io
account=$work/operator.kubeconfig
cp "$(readlink -f "$KUBECONFIG")" "$account"
chmod 600 "$account"
kubectl --kubeconfig "$account" config set-credentials operator \
    --token="$(kubectl create token kubewarm -n kubewarm-system --duration=24h)" >/dev/null
kubectl --kubeconfig "$account" config set-context --current --user=operator >/dev/null
kubectl --kubeconfig "$account" config delete-user user >/dev/null
kubewarm run --kubeconfig "$account" --operator-namespace kubewarm-system \
    --admin-addr 127.0.0.1:0 --api-addr 127.0.0.1:0 \
    --tls-cert-file "$work/cluster/pki/server.crt" --tls-private-key-file "$work/cluster/pki/server.key" \
    >"$work/kubewarm.log" 2>&1 &
operator=$!
give_up() {
    headline "$1; the log of kubewarm ends with:"
    tail -n 20 "$work/kubewarm.log"
    exit 1
}

headline "Kubernetes $server with $parts Parts, a custom resource. kubewarm (${bin##*/} build) may not read them yet."
run kubectl apply -f "$profile_file"

headline 'The missing permission is in the status'
kubectl wait --for=condition=Authorized=False cprof/parts -n factory --timeout=60s >/dev/null || give_up 'no status'
run kubectl warm status parts -n factory || true

headline 'Grant it'
printf '\e[1m$ kubectl warm rbac parts -n factory --operator-namespace kubewarm-system | kubectl apply -f -\e[0m\n'
kubectl warm rbac parts -n factory --operator-namespace kubewarm-system | kubectl apply -f -
run kubectl wait --for=condition=Ready cprof/parts -n factory --timeout=120s || give_up 'the profile is not Ready'

read -r objects memory < <(kubectl get cprof parts -n factory -o jsonpath='{.status.objects} {.status.memory}{"\n"}')
headline "Memory: $objects objects in $memory, at most $(($(numfmt --from=iec-i "$memory") / objects)) bytes for each"

headline 'The same list from both servers'
address_of() { grep -m 1 "$1" "$work/kubewarm.log" | grep -oE '127\.0\.0\.1:[0-9]+' | head -n 1; }
cache=$work/cache.kubeconfig
kubectl create token reader -n factory --duration=24h >"$work/token"
cache_server=https://$(address_of 'serving reads')
kubewarm kubeconfig --cache-server "$cache_server" --token-file "$work/token" \
    --cache-certificate-authority "$work/cluster/pki/ca.crt" --output-file "$cache" >/dev/null
run kubectl warm get parts -n factory -l material=steel --compare --cache-kubeconfig "$cache"

headline 'Try next'
echo 'own.kubeconfig is for another reader: any token of this cluster works, such as that of a ServiceAccount of your namespace.'
cat <<NEXT
  export KUBEWARM_OPERATOR_NAMESPACE=kubewarm-system KUBECONFIG=$(printf %q "$KUBECONFIG") PATH=$(printf %q "$work/plugin:$bin:$work/cluster/bin"):\$PATH
  kubectl --kubeconfig $cache get parts -n factory -l material=brass -w
  kubectl delete rolebinding -n factory -l kubewarm.io/profile; kubectl warm status -A -w    # then grant it again, as above
  kubectl create token reader -n factory >$work/own.token
  kubectl warm kubeconfig --cache-server $cache_server --cache-certificate-authority $work/cluster/pki/ca.crt --token-file $work/own.token --output-file $work/own.kubeconfig
  kubectl --kubeconfig $work/own.kubeconfig get parts -n factory -l material=nylon
  curl -s http://$(address_of 'admin listening')/metrics | grep ^kubewarm_read_requests_total
NEXT
[[ -n ${DEMO_EXIT:-} ]] && exit 0
headline 'Running until Ctrl-C'
trap 'exit 0' INT
wait "$operator"
