/**
 * Resources that a program in a container can see and reach, as a Python program there finds them. Tests run it in our
 * containers and in bare ones, so that a probe proves itself.
 */

/** Facts as the probe prints them. */
export interface Probed {
  readonly uid: number;
  readonly capEff: string;
  readonly noNewPrivs: number;
  readonly seccomp: number;
  readonly dockerSocket: boolean;
  readonly memoryLimit: string;
  readonly cpuLimit: string;
  readonly pidsMax: string;
  readonly swapLimit: string;
  readonly openFiles: number;
  /** Hard limit of a core dump's size; -1: none. */
  readonly coreLimit: number;
  /** `raised`, or the name of the error. */
  readonly coreRaised: string;
  /**
   * Whether a process that ends with a segmentation fault dumps
   * its memory, and the files that it leaves in its directory.
   */
  readonly coreDumped: boolean;
  readonly coreFiles: readonly string[];
  readonly devices: readonly string[];
  readonly rawSocket: string;
  readonly mount: string;
  /** Result by target: `connected`, or the name of the error. */
  readonly reached: Readonly<Record<string, string>>;
}

const SOURCE = `
import ctypes, errno, json, os, resource, socket, subprocess, sys, tempfile

def _read(*paths):
    for path in paths:
        try:
            with open(path) as file:
                return file.read().strip()
        except OSError:
            pass
    return ""

def _reach(target):
    host, port = target.rsplit(":", 1)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=3).close()
        return "connected"
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)

def _raw():
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
        return "opened"
    except OSError as error:
        return errno.errorcode.get(error.errno, "?")

def _mount():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", b"/mnt", b"tmpfs", 0, None) == 0:
        return "mounted"
    return errno.errorcode.get(ctypes.get_errno(), "?")

def _raise_core():
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return "raised"
    except (OSError, ValueError) as error:
        return type(error).__name__

def _crash():
    folder = tempfile.mkdtemp()
    crashing = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    child = subprocess.Popen([sys.executable, "-c", crashing], cwd=folder)
    _, status = os.waitpid(child.pid, 0)
    return {"coreDumped": os.WCOREDUMP(status), "coreFiles": os.listdir(folder)}

def probe(targets=()):
    status = dict(line.split(":\\t", 1) for line in _read("/proc/self/status").splitlines() if ":\\t" in line)
    return {
        "uid": os.getuid(),
        "capEff": status["CapEff"].strip(),
        "noNewPrivs": int(status["NoNewPrivs"]),
        "seccomp": int(status["Seccomp"]),
        "dockerSocket": os.path.exists("/var/run/docker.sock") or os.path.exists("/run/docker.sock"),
        "memoryLimit": _read("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        "swapLimit": _read("/sys/fs/cgroup/memory.swap.max", "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"),
        "cpuLimit": _read("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
        "pidsMax": _read("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"),
        "openFiles": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "coreLimit": resource.getrlimit(resource.RLIMIT_CORE)[1],
        "coreRaised": _raise_core(),
        **_crash(),
        "devices": sorted(os.listdir("/dev")),
        "rawSocket": _raw(),
        "mount": _mount(),
        "reached": {target: _reach(target) for target in targets},
    }
`;

/** A program that prints its facts as one line of JSON. */
export const probeProgram = (targets: readonly string[]): string =>
  `${SOURCE}\nprint(json.dumps(probe(${JSON.stringify(targets)})))\n`;

/** An app whose handler answers with them. */
export const PROBE_APP = `${SOURCE}
def handler(targets):
    return probe(targets)
`;

/** An app that listens on a port of its container from its start on, beside the probe. */
export const LISTENING_APP = `${PROBE_APP}
import threading
server = socket.create_server(("0.0.0.0", 8123))
threading.Thread(target=lambda: [server.accept() for _ in iter(int, 1)], daemon=True).start()
`;
