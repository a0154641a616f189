#!/usr/bin/env bash
# From nothing to a warm profile on a real API server: `make demo`. With DEMO_EXIT=1 it ends after
# the summary, otherwise it stays until Ctrl-C. With DEMO_BIN=FOLDER it runs what is built there.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly parts=4000 writers=10 patience=120s
profiles=('shop quickstart' 'kubewarm-system world')

step() { printf '\n\e[1m%s\e[0m\n' "$*"; }

# One that is so new that it has no conditions yet is an error for kubectl.
await_kind() {
    local attempt
    for attempt in {1..10}; do
        kubectl wait --for=condition=Established "crd/$1" >/dev/null 2>&1 && return
        sleep 1
    done
    kubectl wait --for=condition=Established "crd/$1" >/dev/null
}

if [[ -z ${DEMO_BIN:-} ]]; then
    step 'Building kubewarm (release)'
    cargo build --locked --release -p kubewarm -p testbed
fi
readonly bin=${DEMO_BIN:-${CARGO_TARGET_DIR:-target}/release}

work=$(mktemp -d)
readonly work
operator='' screen=''
clean_up() {
    local code=$?
    for process in $screen $operator; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    [[ ! -d $work/cluster ]] || "$bin/testbed" down --dir "$work/cluster"
    rm -rf "$work"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

step 'Starting etcd, kube-apiserver and kube-controller-manager'
"$bin/testbed" up --dir "$work/cluster"
export KUBECONFIG=$work/cluster/admin.kubeconfig KUBECACHEDIR=$work/cluster/kubectl-cache
export PATH=$work/cluster/bin:$PATH
kubectl version | grep Server

step "Creating a small world: Deployments, ConfigMaps, Secrets and $parts Parts"
kubectl apply -f tests/demo/world.yaml >/dev/null
await_kind parts.factory.example.com
# One kubectl makes 50 objects a second after the first 300, so several share the work.
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
kubectl get deployments,configmaps -A --no-headers | grep -Ev 'kube-' || true

step 'Installing the CacheProfile resource and the operator account, which may read nothing yet'
kubectl apply -f crds/kubewarm.io_cacheprofiles.yaml -f deploy/operator-rbac.yaml -f deploy/read-api.yaml
await_kind cacheprofiles.kubewarm.io

step 'Starting kubewarm as that account'
cp "$(readlink -f "$KUBECONFIG")" "$work/operator.kubeconfig"
chmod 600 "$work/operator.kubeconfig"
as_operator=(kubectl --kubeconfig "$work/operator.kubeconfig" config)
"${as_operator[@]}" set-credentials operator \
    --token="$(kubectl create token kubewarm -n kubewarm-system --duration=24h)" >/dev/null
"${as_operator[@]}" set-context --current --user=operator >/dev/null
"${as_operator[@]}" delete-user user >/dev/null
"$bin/kubewarm" run --kubeconfig "$work/operator.kubeconfig" --operator-namespace kubewarm-system \
    --admin-addr 127.0.0.1:0 --api-addr 127.0.0.1:0 \
    --tls-cert-file "$work/cluster/pki/server.crt" --tls-private-key-file "$work/cluster/pki/server.key" \
    >"$work/kubewarm.log" 2>&1 &
operator=$!

step 'Applying deploy/examples/quickstart.yaml, and a profile of the world with the Roles it needs'
echo '$ kubectl apply -f deploy/examples/quickstart.yaml'
kubectl apply -f deploy/examples/quickstart.yaml
echo '$ kubewarm rbac -f tests/demo/profile.yaml | kubectl apply -f -'
"$bin/kubewarm" rbac -f tests/demo/profile.yaml | kubectl apply -f -
echo '$ kubectl apply -f tests/demo/profile.yaml'
kubectl apply -f tests/demo/profile.yaml

step 'Warming up (kubewarm status -A -w)'
"$bin/kubewarm" status -A -w &
screen=$!
for profile in "${profiles[@]}"; do
    read -r namespace name <<<"$profile"
    "$bin/kubewarm" wait "$name" -n "$namespace" --timeout "$patience" >/dev/null 2>&1 &
    # The operator may be the one that ends.
    if ! wait -n $! "$operator" 2>/dev/null || ! kill -0 "$operator" 2>/dev/null; then
        kill "$screen"
        step "$namespace/$name is not Ready within $patience, or kubewarm has ended; its log ends:"
        tail -n 40 "$work/kubewarm.log"
        exit 1
    fi
done
sleep 1 # so that the screen shows the last change
kill "$screen"
wait "$screen" 2>/dev/null || true
screen=''

step 'kubectl get cprof -A'
kubectl get cprof -A
step 'What the status says'
kubectl get cprof world -n kubewarm-system -o jsonpath='{range .status.targets[*]}{.name}: {.objects} objects in {.memory}, warm after {.timeToWarmMilliseconds} ms{"\n"}{end}'
echo
kubectl get cprof quickstart -n shop -o jsonpath='{.status.access.manifests}'

address_of() { grep -m 1 "$1" "$work/kubewarm.log" | grep -oE '127\.0\.0\.1:[0-9]+' | head -n 1; }

step 'The same list from both servers (each time includes the start of kubectl)'
cache=$work/cache.kubeconfig
kubectl create token reader -n factory --duration=24h >"$work/token"
"$bin/kubewarm" kubeconfig --cache-server "https://$(address_of 'serving reads')" --token-file "$work/token" \
    --cache-certificate-authority "$work/cluster/pki/ca.crt" --output-file "$cache"
list_parts() {
    local begin=$EPOCHREALTIME count
    count=$(kubectl --kubeconfig "$2" get --raw "$parts_of_steel" | grep -o '"uid"' | wc -l)
    printf '%-12s %d Parts of steel in %d ms\n' "$1" "$count" $(((${EPOCHREALTIME/./} - ${begin/./}) / 1000))
}
readonly parts_of_steel='/apis/factory.example.com/v1/namespaces/factory/parts?labelSelector=material%3Dsteel'
list_parts 'API server' "$KUBECONFIG"
list_parts kubewarm "$cache"

step 'Try next'
cat <<NEXT
  export KUBECONFIG=$KUBECONFIG PATH=$work/cluster/bin:\$PATH
  kubectl --kubeconfig $cache get parts -n factory -l material=brass
  kubectl create configmap news --from-literal=a=b -n billing; $(realpath "$bin")/kubewarm status world -n kubewarm-system
  kubectl delete crd parts.factory.example.com; kubectl get cprof -A -o wide -w
  curl -s http://$(address_of 'admin listening')/metrics | grep ^kubewarm_
NEXT
[[ -n ${DEMO_EXIT:-} ]] && exit 0
step 'Running until Ctrl-C'
trap 'exit 0' INT
wait "$operator"
