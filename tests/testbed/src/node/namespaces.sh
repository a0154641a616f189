# Prepares its Linux namespaces for a node, prints "fit" and becomes their first process.
#
# $1: the folder of the node; $2: its address; $3: the name of its cgroups; $4: the program to become.
set -eu

# The kubelet's mounts must be visible to its child processes. The host sees none of them.
mount --make-rshared /
# With these mounts, default paths leave nothing on the host.
mkdir -p "$1/var/lib/kubelet" "$1/var/lib/cni" "$1/var/lib/containerd" "$1/var/log" "$1/var/tmp"
ln -s /run "$1/var/run"
mount --bind "$1/var" /var
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/lock

# The kubelet requires these settings, which belong to the host. It reads files of the test instead.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    name=${setting%=*}
    file=/run/sysctl.$(echo "$name" | tr / .)
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "/proc/sys/$name"
done

# A bridge without ports carries the address, because some kernels have no dummy links. Without a default
# route, the node has no route to Service addresses.
ip link set lo up
ip link add node0 type bridge
ip address add "$2/24" dev node0
ip link set node0 up
ip route add default dev node0
echo 1 >/proc/sys/net/ipv4/ip_forward
bridged=/proc/sys/net/bridge/bridge-nf-call-iptables
[ ! -e "$bridged" ] || echo 1 >"$bridged"

# The kubelet requires one root cgroup for the node in each hierarchy.
if [ -e /sys/fs/cgroup/cgroup.procs ]; then
    mkdir "/sys/fs/cgroup/$3"
else
    for hierarchy in /sys/fs/cgroup/*/; do
        [ -e "$hierarchy/cgroup.procs" ] || continue
        mkdir "$hierarchy/$3"
        for file in cpuset.cpus cpuset.mems; do
            [ ! -e "$hierarchy/$file" ] || cat "$hierarchy/$file" >"$hierarchy/$3/$file"
        done
    done
fi

echo fit
exec "$4"
