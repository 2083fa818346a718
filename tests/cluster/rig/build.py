"""Builds the programs of the test cluster from Go modules, each version once, into a cache.

The cache is ${TRAINYARD_CACHE:-~/.cache/trainyard}/cluster/<component>-<version>-<recipe>/bin. Go's own
caches are used as they are; the module proxy is the only network that is needed.
"""
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from rig.unavailable import Unavailable

HERE = pathlib.Path(__file__).resolve().parent.parent
OLDEST_GO = (1, 25)

ETCD = """package main

import (
    "os"

    "go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"""

# Only the plugins that serve a cluster's names: a tenth of what the whole CoreDNS takes to build.
COREDNS = """package main

import (
    "github.com/coredns/coredns/core/dnsserver"
    "github.com/coredns/coredns/coremain"
    _ "github.com/coredns/coredns/plugin/bind"
    _ "github.com/coredns/coredns/plugin/cache"
    _ "github.com/coredns/coredns/plugin/errors"
    _ "github.com/coredns/coredns/plugin/kubernetes"
)

func init() { dnsserver.Directives = []string{"bind", "errors", "cache", "kubernetes"} }

func main() { coremain.Run() }
"""

# The scheduler with the one plugin that places groups of pods.
COSCHEDULING = """package main

import (
    "os"

    "k8s.io/component-base/cli"
    "k8s.io/kubernetes/cmd/kube-scheduler/app"
    _ "sigs.k8s.io/scheduler-plugins/apis/config/scheme"
    "sigs.k8s.io/scheduler-plugins/pkg/coscheduling"
)

func main() {
    os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(coscheduling.Name, coscheduling.New))))
}
"""

# Kueue's queues, quota and preemption, without its integrations of others' jobs, and without webhooks, which need
# certificates.
KUEUE = """package main

import (
    "os"

    "k8s.io/apimachinery/pkg/runtime"
    utilfeature "k8s.io/apiserver/pkg/util/feature"
    clientgoscheme "k8s.io/client-go/kubernetes/scheme"
    ctrl "sigs.k8s.io/controller-runtime"
    "sigs.k8s.io/controller-runtime/pkg/log/zap"
    metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

    configapi "sigs.k8s.io/kueue/apis/config/v1beta1"
    kueuealpha "sigs.k8s.io/kueue/apis/kueue/v1alpha1"
    kueue "sigs.k8s.io/kueue/apis/kueue/v1beta1"
    qcache "sigs.k8s.io/kueue/pkg/cache/queue"
    schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
    "sigs.k8s.io/kueue/pkg/constants"
    "sigs.k8s.io/kueue/pkg/controller/core"
    "sigs.k8s.io/kueue/pkg/controller/core/indexer"
    "sigs.k8s.io/kueue/pkg/features"
    "sigs.k8s.io/kueue/pkg/scheduler"
)

func must(err error) {
    if err != nil {
        ctrl.Log.Error(err, "kueue")
        os.Exit(1)
    }
}

func main() {
    ctrl.SetLogger(zap.New())
    must(utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.TopologyAwareScheduling): false}))
    scheme := runtime.NewScheme()
    must(clientgoscheme.AddToScheme(scheme))
    must(kueue.AddToScheme(scheme))
    must(kueuealpha.AddToScheme(scheme))
    cfg := &configapi.Configuration{}
    configapi.SetDefaults_Configuration(cfg)
    mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
        Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
    must(err)
    ctx := ctrl.SetupSignalHandler()
    must(indexer.Setup(ctx, mgr.GetFieldIndexer()))
    cache := schdcache.New(mgr.GetClient())
    queues := qcache.NewManager(mgr.GetClient(), cache)
    _, err = core.SetupControllers(mgr, queues, cache, cfg)
    must(err)
    go queues.CleanUpOnContext(ctx)
    go cache.CleanUpOnContext(ctx)
    must(mgr.Add(scheduler.New(queues, cache, mgr.GetClient(), mgr.GetEventRecorderFor(constants.AdmissionName))))
    must(mgr.Start(ctx))
}
"""

# Ends when it is told to, and collects what its pod leaves: the process that holds a pod's namespaces.
PAUSE = """#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) { _exit(number > 0 ? 0 : 1); }
static void collect(int number) {
  while (number > 0 && waitpid(-1, 0, WNOHANG) > 0) {
  }
}
int main(void) {
  signal(SIGTERM, end);
  signal(SIGINT, end);
  signal(SIGCHLD, collect);
  for (;;) pause();
}
"""


@dataclasses.dataclass
class Component:
    """What one module gives: programs by package, one program with a main of ours, or only files."""
    name: str
    module: str = ""
    packages: tuple = ()
    main: str = ""  # Go source; the program is called like the component
    c_source: str = ""
    staging: bool = False  # the module replaces modules of its own tree, as Kubernetes does
    # Another component, whose modules are taken in its versions: what was compiled for it serves again.
    base: "Component | None" = None
    on_demand: bool = False  # built when it is named only
    kept: str = ""  # a folder of the module that is kept beside bin, as `module`
    version: str = ""

    def programs(self):
        if self.main or self.c_source:
            return [self.name]
        return [package.rsplit("/", 1)[1] for package in self.packages]

    def staged_version(self):
        """The tree's own modules are published under v0: v1.34.4 is v0.34.4 there."""
        return f"v0{self.version[1:]}"

    def folder(self):
        parts = (self.packages, self.main, self.c_source)
        if self.base:
            parts += (self.base.version,)
        recipe = hashlib.sha256(repr(parts).encode()).hexdigest()[:8]
        return cache() / f"{self.name}-{self.version}-{recipe}"

    def built(self):
        return all((self.folder() / "bin" / name).exists() for name in ("", *self.programs()))


def cache():
    base = os.environ.get("TRAINYARD_CACHE") or pathlib.Path.home() / ".cache" / "trainyard"
    return pathlib.Path(base) / "cluster"


def versions():
    text = re.sub(r"#.*", "", (HERE / "versions.txt").read_text(encoding="utf-8"))
    return dict(line.split() for line in text.splitlines() if line.strip())


def components():
    pinned = versions()
    programs = tuple(f"k8s.io/kubernetes/cmd/{name}" for name in (
        "kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy",
        "kubelet"))
    kubernetes = Component("kubernetes", "k8s.io/kubernetes", programs, staging=True, version=pinned["kubernetes"])
    return [
        kubernetes,
        Component("etcd", "go.etcd.io/etcd/server/v3", main=ETCD, version=pinned["etcd"]),
        Component("coredns", "github.com/coredns/coredns", main=COREDNS, base=kubernetes, version=pinned["coredns"]),
        Component("helm", "helm.sh/helm/v3", ("helm.sh/helm/v3/cmd/helm",), base=kubernetes, version=pinned["helm"]),
        Component("scheduler-plugins", "sigs.k8s.io/scheduler-plugins", main=COSCHEDULING, base=kubernetes,
                  kept="config/crd/bases", version=pinned["scheduler-plugins"]),
        Component("kueue", "sigs.k8s.io/kueue", main=KUEUE, base=kubernetes, kept="config/components/crd/bases",
                  version=pinned["kueue"]),
        Component("volcano", "volcano.sh/volcano", kept="config/crd/volcano/bases", version=pinned["volcano"]),
        Component("minio", "github.com/minio/minio", ("github.com/minio/minio",), version=pinned["minio"]),
        Component("kwok", "sigs.k8s.io/kwok", ("sigs.k8s.io/kwok/cmd/kwok",), on_demand=True,
                  version=pinned["kwok"]),
        Component("training-operator", "github.com/kubeflow/training-operator",
                  ("github.com/kubeflow/training-operator/cmd/training-operator.v1",), on_demand=True,
                  kept="manifests/base", version=pinned["training-operator"]),
        Component("pause", c_source=PAUSE, version="1"),
    ]


def find(name):
    """The path of a program of the cluster; raises Unavailable while it is not built."""
    for component in components():
        if name in component.programs():
            path = component.folder() / "bin" / name
            if not path.exists():
                raise Unavailable(f"{name} {component.version} is not built: make cluster-build")
            return path
    raise KeyError(name)


def kept(name):
    """The folder that is kept of a component's module; raises Unavailable while it is not there."""
    component = next(one for one in components() if one.name == name)
    if not component.built():
        raise Unavailable(f"{name} {component.version} is not built: make cluster-build")
    return component.folder() / "module"


def search_path():
    """The folders of all components, for PATH."""
    return [str(component.folder() / "bin") for component in components()]


class Go:
    """A Go that is new enough: the one at hand, or the pinned one from the module proxy."""

    def __init__(self, log):
        self.log = log
        self.environment = dict(os.environ, CGO_ENABLED="0", GOFLAGS="-mod=mod", GOWORK="off",
                                GO111MODULE="on", GOTOOLCHAIN="local")
        candidates = [os.environ.get("TRAINYARD_GO"), shutil.which("go"), "/usr/local/go/bin/go"]
        found = [path for path in candidates if path and os.access(path, os.X_OK)]
        if not found:
            raise Unavailable("Go is not installed (Debian: golang-go; the pinned one comes with it)")
        new_enough = [path for path in found if self.version_of(path) >= OLDEST_GO]
        self.path = new_enough[0] if new_enough else self.toolchain(found[0])

    @staticmethod
    def version_of(path):
        text = subprocess.run([path, "version"], capture_output=True, text=True, check=True).stdout
        match = re.search(r"go(\d+)\.(\d+)", text)
        return tuple(int(part) for part in match.groups()) if match else (0, 0)

    def toolchain(self, old):
        """Go distributes itself as a module too, which any Go since 1.11 can fetch and verify."""
        name = f"golang.org/toolchain@v0.0.1-go{versions()['go']}.linux-amd64"
        with tempfile.TemporaryDirectory() as folder:
            self.run([old, "mod", "init", "toolchain"], folder)
            self.run([old, "mod", "download", name], folder)
        modules = subprocess.run([old, "env", "GOMODCACHE"], capture_output=True, text=True, check=True)
        root = pathlib.Path(modules.stdout.strip()) / name
        for program in [*root.glob("bin/*"), *root.glob("pkg/tool/linux_amd64/*")]:
            program.chmod(0o555)  # old versions unpack modules without the bit for execution
        return str(root / "bin" / "go")

    def run(self, command, folder):
        """Runs `command`; its output goes to the log; the error names the log."""
        with open(self.log, "ab") as output:
            code = subprocess.run(command, cwd=folder, env=self.environment, stdout=output,
                                  stderr=subprocess.STDOUT).returncode
        if code != 0:
            tail = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            raise Unavailable(f"`{' '.join(command[:4])} ...` failed (log: {self.log}): " + " / ".join(tail))

    def build(self, component, source, target):
        """Builds the programs of one component into the folder `target`."""
        (source / "go.mod").write_text("\n".join(self.requirements(component, source)) + "\n")
        # What a debugger needs was a seventh of the time that etcd took, and the linker leaves it out.
        flags = ["-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags",
                 self.linker_flags(component)]
        if component.main:
            (source / "main.go").write_text(component.main)
            self.run([self.path, "get", f"{component.module}@v{component.version}"], source)
            self.run([self.path, "build", *flags, "-o", str(target / component.name), "."], source)
        for package in component.packages:
            self.run([self.path, "build", *flags, "-o", str(target / package.rsplit("/", 1)[1]), package],
                     source)
        if component.kept:
            self.download(component, source)
            shutil.copytree(self.module(component) / component.kept, target.parent / "module")

    def requirements(self, component, source):
        """The lines of the go.mod with which a component is built."""
        lines = ["module build", "", "go 1.25", "", f"require {component.module} v{component.version}"]
        tree = component.base or component
        if component.base:
            lines += [f"require {tree.module} v{tree.version}", *self.excluded(component, source)]
        if tree.staging:
            staged = [name for name, version in self.wanted(tree, source).items() if version == tree.staged_version()]
            lines += [f"require {name} {tree.staged_version()}" for name in staged]
            lines += [f"replace {name} => {name} {tree.staged_version()}" for name in staged]
        return lines

    def excluded(self, component, source):
        """Go takes the highest version that anybody asks for, unless it is excluded; a module in another version
        has all that imports it compiled anew."""
        base = component.base
        theirs = {base.module: f"v{base.version}", **self.wanted(base, source)}
        return [f"exclude {name} {version}" for name, version in self.wanted(component, source).items()
                if theirs.get(name, version) != version]

    def wanted(self, component, source):
        """{module: version} that a component's module asks for."""
        self.download(component, source)
        text = (self.module(component) / "go.mod").read_text()
        found = re.findall(r"^\s*(?:require )?(\S+) (v\S+)(?: // indirect)?$", text, re.M)
        return {name: component.staged_version() if version == "v0.0.0" else version for name, version in found}

    def download(self, component, source):
        self.run([self.path, "mod", "download", f"{component.module}@v{component.version}"], source)

    def module(self, component):
        """The folder of a component's source in Go's cache."""
        modules = subprocess.run([self.path, "env", "GOMODCACHE"], capture_output=True, text=True, check=True)
        return pathlib.Path(modules.stdout.strip()) / f"{component.module}@v{component.version}"

    @staticmethod
    def linker_flags(component):
        tree = component.base or component
        if not tree.staging:
            return "-s -w"
        major, minor, _ = tree.version.split(".")
        place = "k8s.io/component-base/version"
        return (f"-s -w -X {place}.gitVersion=v{tree.version} -X {place}.gitMajor={major} "
                f"-X {place}.gitMinor={minor}")


def build_c(component, source, target):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        raise Unavailable("no C compiler (Debian: g++)")
    (source / "main.c").write_text(component.c_source)
    subprocess.run([compiler, "-static", "-O2", "-s", "-Wall", "-Werror", "-o", str(target / component.name),
                    str(source / "main.c")], check=True)


def build_one(component, go):
    """Builds `component` beside its place in the cache, then moves it there in one step."""
    folder = component.folder()
    with tempfile.TemporaryDirectory(dir=cache(), prefix="building.") as temporary:
        source, target = pathlib.Path(temporary, "source"), pathlib.Path(temporary, "out", "bin")
        source.mkdir()
        target.mkdir(parents=True)
        if component.c_source:
            build_c(component, source, target)
        else:
            go().build(component, source, target)
        shutil.rmtree(folder, ignore_errors=True)
        target.parent.rename(folder)


def build(only=None):
    """Builds what is missing (of `only`, names of components); raises Unavailable where it cannot."""
    cache().mkdir(parents=True, exist_ok=True)
    log = cache() / "build.log"
    made = []

    def go():
        if not made:
            made.append(Go(log))
        return made[0]

    with open(cache() / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for interrupted in cache().glob("building.*"):
            shutil.rmtree(interrupted)
        for component in components():
            wanted = component.name in only if only else not component.on_demand
            if component.built() or not wanted:
                continue
            started = time.monotonic()
            print(f"cluster: building {component.name} {component.version}", file=sys.stderr, flush=True)
            build_one(component, go)
            print(f"cluster: built {component.name} in {time.monotonic() - started:.0f} s",
                  file=sys.stderr, flush=True)
