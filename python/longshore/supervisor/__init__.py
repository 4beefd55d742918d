"""The program beside an application in a container: runs programs, keeps their output, gives access to files and ports.

`longshore.supervisor.main.main()` runs it (docs/supervisor-protocol.md). Standard library only, Python 3.8 to 3.14. Every import
here would slow down every start, so this file has none.
"""
