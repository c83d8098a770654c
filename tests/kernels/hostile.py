"""Launch code that means harm: each function tries something, then launches a kernel."""

import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import torch
import triton
import triton.language as tl


@triton.jit
def innocent(x, N: tl.constexpr):
    tl.store(x, N)


def finish(said=""):
    """Launch; then raise what the test wants to know, which is the one way to tell it."""
    innocent[(1,)](torch.empty(1, device="cuda"), N=1)
    if said:
        raise RuntimeError(json.dumps(said))


def attempt(deed, *arguments):
    try:
        deed(*arguments)
    except OSError as error:
        return f"{deed.__name__}: {type(error).__name__}"
    return f"{deed.__name__}: done"


def launch_environment(pid=0):
    own = dict(os.environ)
    with open("/proc/self/environ", "rb") as file:
        started_with = file.read().decode()
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            parents = file.read().decode()
    except OSError as error:
        parents = type(error).__name__
    finish([own, started_with, parents])


def launch_network(port=0, path=""):
    def tcp():
        socket.create_connection(("127.0.0.1", port), timeout=5).sendall(b"secret")

    def udp():
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"secret", ("127.0.0.1", port))

    def unix():
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(path)
            channel.sendall(b"secret")

    def another_program():
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
        if subprocess.run([sys.executable, "-I", "-S", "-c", code], stderr=-3).returncode:
            raise PermissionError

    finish([attempt(deed) for deed in (tcp, udp, unix, another_program)])


def launch_writes(folder=""):
    """`folder` holds a file `thesis.txt`."""
    thesis = os.path.join(folder, "thesis.txt")

    def write():
        open(thesis, "w").close()

    def append():
        open(thesis, "a").write("x")

    def empty():
        os.close(os.open(thesis, os.O_RDONLY | os.O_TRUNC))

    def truncate():
        os.truncate(thesis, 0)

    def remove():
        os.unlink(thesis)

    def move():
        os.rename(thesis, os.path.join(os.environ["HOME"], "thesis.txt"))

    def exchange():
        os.replace(thesis, thesis + ".old")

    def make():
        open(os.path.join(folder, "planted"), "w").close()

    def make_folder():
        os.mkdir(os.path.join(folder, "planted.d"))

    def link():
        os.symlink("/etc/passwd", os.path.join(folder, "planted.link"))

    def change_mode():
        os.chmod(thesis, 0)

    def change_owner():
        os.chown(thesis, 65534, 65534)

    def remove_all():
        shutil.rmtree(folder)

    def with_a_shell():
        script = f"echo x > {thesis}; rm -f {thesis}; touch {folder}/planted"
        if subprocess.run(["/bin/sh", "-c", script], stderr=-3).returncode:
            raise PermissionError

    deeds = [write, append, empty, truncate, remove, move, exchange, make, make_folder, link]
    deeds += [change_mode, change_owner, with_a_shell, remove_all]
    finish([attempt(deed) for deed in deeds])


def launch_own_folder():
    """What ordinary launch code does with files stays possible; what lays a trap does not."""
    home = os.environ["HOME"]
    os.makedirs(os.path.expanduser("~/.cache/some/where"))
    with open(os.path.expanduser("~/.cache/some/where/file"), "w") as file:
        file.write("x")
    os.rename(file.name, os.path.join(home, "file"))
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(b"x")

    def fifo():
        os.mkfifo(os.path.join(home, "fifo"))

    def link():
        os.symlink("/etc/passwd", os.path.join(home, "link"))

    finish([home, attempt(fifo), attempt(link)])


def launch_kills(pid=0):
    def parent():
        os.kill(os.getppid(), signal.SIGKILL)

    def caller():
        os.kill(pid, signal.SIGKILL)

    finish([attempt(parent), attempt(caller)])


def launch_daemons():
    pids = []
    for number in range(3):
        path = os.path.join(os.environ["HOME"], f"daemon-{number}")
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                with open(path + ".new", "w") as file:
                    file.write(str(os.getpid()))
                os.rename(path + ".new", path)
                time.sleep(1000)
            os._exit(0)
        while not os.path.exists(path):
            time.sleep(0.01)
        pids.append(int(open(path).read()))
    finish(pids)


def eat():
    eaten = bytearray(2 << 30)
    for at in range(0, len(eaten), 4096):
        eaten[at] = 1
    time.sleep(1000)  # until the limit is enforced


def launch_memory():
    eat()
    finish()


def launch_memory_below():
    code = "import time\neaten = bytearray(2 << 30)\n"
    code += "for at in range(0, len(eaten), 4096): eaten[at] = 1\ntime.sleep(1000)"
    subprocess.run([sys.executable, "-I", "-S", "-c", code])
    finish()


def launch_json():
    finish()
    json.dumps = lambda *_, **__: "{}"


def launch_json_inside():
    finish()
    json.JSONEncoder.encode = lambda *_, **__: "{}"


def launch_forges():
    """Say that it is over, in the place of the program that runs this."""
    forged = {"captured": {"records": "none", "error": 5}, "id": 1, "end": {"exit_code": 0}}
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), json.dumps(forged).encode() + b"\n")
        except OSError:
            pass
    finish()


def launch_speaks_for_another(path="", names=()):
    """Find the caller's socket, and hand it a capture under the names of other children."""

    def forge():
        for name in names:
            with socket.socket(socket.AF_UNIX) as channel:
                channel.connect(path)
                channel.sendall(json.dumps({"hello": name}).encode() + b"\n")
                channel.sendall(json.dumps({"captured": {"records": []}}).encode() + b"\n")

    finish([attempt(forge), sorted(glob.glob(path))])
