"""The embedded stack: real servers for demos, tests and development, out of this package alone.

`with Stack.start() as stack:` (stack.py) opens a sandbox (sandbox.py): a temporary folder and the
reaper (reaper.py), a process that outlives ours, however ours ends. A server (server.py) runs only
once the reaper knows it. Stopping the servers and removing the folder therefore has one road, which
a clean exit and a `kill -9` share.
"""
