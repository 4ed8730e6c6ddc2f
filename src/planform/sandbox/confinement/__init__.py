"""What happens between the birth of a child and its first own instruction. Standard library only, and little of it.

The spawner runs this in an interpreter of its own, so nothing here may import anything of planform but its siblings:

syscalls    the calls of the kernel that Python has no name for
root        a root directory made of what a child may see, and nothing else
landlock    files, signals and sockets by Landlock
seccomp     calls of the kernel that no function needs
launch      limits, identity, second layer, and then the command itself
relay       how a function without network is reached
spawner     the process that children come from
"""
