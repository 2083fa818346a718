"""An HTTP proxy of the tests' own: tinyproxy, which asks who comes."""
import pathlib
import shutil
import socket
import subprocess
import time

from rig import namespaces, object_store, unavailable

USER = "ann"
PASSWORD = "p.ss"  # plain characters only, by its own grammar
LIMIT = 30


class HttpProxy:
    def __init__(self, folder):
        self.port = object_store.free_port()
        self.log = pathlib.Path(folder) / "proxy.log"
        self.settings = pathlib.Path(folder) / "proxy.conf"
        self.settings.write_text(f"Port {self.port}\nListen 127.0.0.1\nBasicAuth {USER} {PASSWORD}\n"
                                 f'LogFile "{self.log}"\nLogLevel Connect\nTimeout 60\n')
        self.process = None

    def url(self, who=f"{USER}:p%2Ess"):
        return f"http://{who}@127.0.0.1:{self.port}"

    def asked_for(self, address):
        """How often somebody wanted to be connected with "host:port" so far."""
        return self.log.read_text().count(f"CONNECT {address} ")

    def __enter__(self):
        program = shutil.which("tinyproxy")
        if program is None:
            raise unavailable.Unavailable("no tinyproxy: deploy/install_packages.sh cluster")
        self.process = subprocess.Popen([program, "-d", "-c", self.settings], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=namespaces.die_with_parent)
        end = time.monotonic() + LIMIT
        while not self.listens():
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError("the proxy does not listen")
            time.sleep(0.05)
        return self

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
