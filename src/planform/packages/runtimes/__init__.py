"""How revisions of packages run on this machine.

executables    what is run, and how its users want it run
launching      the command line, surroundings and limits of a process
containers     the same in a container, through runc
certificates   one identity per revision, of the control plane's authority
servers        the processes that serve one revision
starting       from what is wanted to those
oneshot        programs that are run to completion for each call
calls          those under way, counted
logs           what they say, in bounded files
host           all of them: start, hand-over, drain, stop
"""
