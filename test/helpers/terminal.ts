/**
 * A Python program that runs another on a terminal of its own, with 30 rows, between its pipes. It ends with the exit
 * code of that program: `python3 -c terminal() PROGRAM ARGUMENTS…`.
 */
export const terminal = (columns = 80): string => `import fcntl, os, pty, select, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 30, ${columns}, 0, 0))
    os.execv(sys.argv[1], sys.argv[1:])
sources = [fd, 0]
while True:
    ready, _, _ = select.select(sources, [], [])
    try:
        if fd in ready:
            data = os.read(fd, 65536)
            if not data: break
            os.write(1, data)
        if 0 in ready:
            data = os.read(0, 65536)
            if data: os.write(fd, data)
            else: sources.remove(0)
    except OSError:
        break
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`;
