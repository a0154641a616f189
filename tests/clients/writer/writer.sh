# The same as main.go, with curl, and without an informer.
#
#   writer.sh NAME
set -eu

name=$1
files=/var/run/secrets/kubernetes.io/serviceaccount
server=https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT
objects=$server/api/v1/namespaces/$(cat "$files/namespace")/configmaps

call() {
    curl --silent --show-error --max-time 10 --cacert "$files/ca.crt" \
        --header "Authorization: Bearer $(cat "$files/token")" "$@"
}

# Prints the number of the writer's ConfigMaps.
count() {
    list=$(call --fail "$objects?labelSelector=writer%3D$name") || return 1
    printf '%s' "$list" | grep -o '"uid": *"' | wc -l
}

again() {
    echo "writer: again: $*" >&2
    sleep 0.2
}

until number=$(count); do again "the first list failed"; done
stale=0
while :; do
    body='{"metadata": {"name": "'"$name-$number"'", "labels": {"writer": "'"$name"'", "app": "web"}},
        "data": {"number": "'"$number"'"}}'
    failures=0
    while :; do
        code=$(call --output /dev/null --write-out '%{http_code}' --header 'Content-Type: application/json' \
            --data "$body" "$objects") || true
        [ "$code" = 201 ] && break
        # An attempt without a response may have created the object.
        if [ "$code" = 409 ]; then
            [ "$failures" -gt 0 ] && break
            echo "writer: $name-$number exists, and no list contained it" >&2
            exit 1
        fi
        failures=$((failures + 1))
        again "create: $code"
    done
    number=$((number + 1))
    while :; do
        if listed=$(count); then
            [ "$listed" -eq "$number" ] && break
            stale=$((stale + 1))
            again "$listed of $number ConfigMaps in the list"
        else
            again "list failed"
        fi
    done
    echo "$number $stale"
    sleep 0.2
done
