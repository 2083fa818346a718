#!/usr/bin/env python3
"""What `make install` and cpack put where: programs that run from another folder, a C program that pkg-config and
CMake build against libtrainyard, started by hand and by `trainyard run`, and a Debian package with all of it."""
import os
import pathlib
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
BUILD = BIN.parent
SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
RANKS = 3


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def expect(holds, what):
    if not holds:
        sys.exit(what)


def by_pkg_config(prefix, folder):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "trainyard", env=environment).split()
    program = folder / "mean"
    run("gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", SOURCE / "examples/c/mean.c", *flags, "-o", program)
    return program


def by_cmake(prefix, folder):
    project = folder / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(mean C)\nfind_package(trainyard 0.1 REQUIRED)\n"
        f"add_executable(mean {SOURCE}/examples/c/mean.c)\ntarget_link_libraries(mean trainyard::trainyard_shared)\n",
        encoding="utf-8")
    run("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", project / "build")
    return project / "build/mean"


def check_ranks(launcher, program, prefix, folder):
    """The launcher tells the ranks where they meet, and a secret."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")}
    output = run(launcher, "run", "-np", RANKS, "--dir", folder / "run", "--", "env",
                 f"LD_LIBRARY_PATH={prefix / 'lib'}", program, env=environment, cwd=folder)
    for rank in range(RANKS):
        expect(f"rank {rank} of {RANKS}: the mean is 2" in output, f"rank {rank} has not told the mean:\n{output}")


def check_debian(folder):
    run("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", folder / "deb", cwd=folder)
    (package,) = (folder / "deb").glob("*.deb")
    files = run("dpkg-deb", "-c", package)
    for path in ("bin/trainyard", "bin/trainyard-agent", "bin/trainyard-runtime", "bin/trainyard-operator",
                 "lib/libtrainyard.so.0", "include/trainyard.h", "lib/pkgconfig/trainyard.pc",
                 "lib/cmake/trainyard/trainyardConfig.cmake"):
        expect(f"/usr/{path}" in files, f"the package has no {path}:\n{files}")
    depends = run("dpkg-deb", "-f", package, "Depends")
    expect("libc6" in depends and "libabsl" in depends, f"the package depends on: {depends}")


def main():
    with tempfile.TemporaryDirectory(prefix="trainyard-install-") as name:
        folder = pathlib.Path(name)
        prefix = folder / "prefix"
        run("cmake", "--install", BUILD, "--component", "trainyard", "--prefix", prefix)
        programs = sorted(path.name for path in (prefix / "bin").iterdir() if not path.name.endswith("-torch"))
        expect(programs == ["trainyard", "trainyard-agent", "trainyard-operator", "trainyard-operator-cpprestsdk",
                            "trainyard-runtime"],
               f"installed programs: {programs}")
        # A tree may be moved.
        moved = folder / "moved"
        prefix.rename(moved)
        found = run(moved / "bin/trainyard", "doctor", cwd=folder)
        for name in ("trainyard-agent", "trainyard-runtime"):
            expect(f"  ok       {name} " in found, f"{name} is not as trainyard wants it:\n{found}")
        program = by_pkg_config(moved, folder)
        check_ranks(moved / "bin/trainyard", program, moved, folder)
        by_cmake(moved, folder)
        check_debian(folder)
    print("ok")


if __name__ == "__main__":
    main()
