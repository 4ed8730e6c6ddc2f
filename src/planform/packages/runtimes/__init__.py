"""How revisions of packages run, on this machine or in a cluster.

On this machine:

executables    what is run, and how its users want it run
launching      the command line, environment and limits of a process
containers     the same in a container, through runc
certificates   one identity per revision, of the control plane's authority
servers        the processes that serve one revision
starting       from what is wanted to those
oneshot        programs that are run to completion for each call
calls          those under way, counted
logs           what they say, in bounded files
host           all of them: start, hand-over, drain, stop

In a cluster:

deployments        the objects that run a revision, as values
cluster_authority  certificates, of an authority that replicas share
serving_pods       where its pods are
cluster_calls      calls of them
kubernetes         all of it: bring what is missing, hand-over, drain, take away
"""
