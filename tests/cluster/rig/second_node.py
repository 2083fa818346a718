"""The second node: a machine of its own, as far as its programs can tell.

It has mounts, network, hostname, IPC and cgroups of its own beside the first node's, but no process that has
to live in them: the programs are children of the cluster's first process like those of the first node, and
step in before they begin. So one process watches the programs of both, and the kernel ends both nodes with it.

    node1: node0, a bridge 192.168.77.1 <- its port node2 == cable == node0 192.168.77.2 :node2

With the port down the node is cut off from the network. Storage is not: below /run/cluster both see the same.
"""
import os
import socket

from rig import namespaces, node
from rig.node import HOME, INTERFACE


def make(first, second):
    """Called in the first node's namespaces before anything runs there: what is mounted there is copied."""
    hierarchies = namespaces.hierarchies()
    namespaces.keep(second.namespaces, second.name)
    # The far end is made where it belongs; only here is somebody who sees both.
    node.ip(f"link add {second.name} master {INTERFACE} up type veth "
            f"peer name {INTERFACE} netns {second.namespaces}/net")
    node.route_pods(second)

    def make_inside():
        second.enter()
        make_place(second, hierarchies)
        node.ip("link set lo up")
        node.join_network(second)
        node.route_pods(first)

    namespaces.in_child(make_inside)


def make_place(second, hierarchies):
    """Own /sys, cgroups, hostname, /run, /var, /etc and /opt; of the first node's /run only the cluster's folder,
    which is the storage of both."""
    namespaces.mount_cgroups(hierarchies)
    socket.sethostname(second.name)
    folder = os.open(HOME, os.O_RDONLY | os.O_DIRECTORY)
    namespaces.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    HOME.mkdir()
    namespaces.bind(folder, HOME)
    os.close(folder)
    namespaces.uncover()
    namespaces.cover(second.home)
