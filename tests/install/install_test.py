#!/usr/bin/env python3
"""What `make install` lays out: programs are built from that tree alone, by pkg-config and by CMake, and run.

Usage: install_test.py BUILD_FOLDER FIXTURES   (the build folder has been built)
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD = Path(sys.argv[1]).resolve()
FIXTURES = Path(sys.argv[2]).resolve()
SOURCE = Path(__file__).resolve().parents[2]
EXPORTED = re.compile(r"\bcarat_\w+(?=\()")


def run(*command, **options) -> str:
    """Standard output; a failure shows what the command said."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(**more) -> dict:
    """Nothing of the caller's may stand in for what the tree lacks."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("CARAT_", "PKG_CONFIG", "CMAKE_", "LD_LIBRARY", "CPATH", "LIBRARY_PATH"))}
    return {**kept, **more}


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(tempfile.mkdtemp(prefix="carat-install-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        # Installed for /usr/local, found elsewhere: nothing may hold the path it was installed for.
        run("cmake", "--install", BUILD, "--prefix", "/usr/local", env=environment(DESTDIR=str(cls.folder)))
        cls.prefix = cls.folder / "usr/local"
        cls.model = FIXTURES / "tiny/gemma3-gqa42/model.gguf"
        cls.examples = cls.prefix / "share/doc/carat/examples"
        cls.pkg_config = environment(PKG_CONFIG_PATH=str(cls.prefix / "lib/pkgconfig"))

    def flags(self, *arguments: str) -> list:
        return run("pkg-config", *arguments, "carat", env=self.pkg_config).split()

    def generated(self, program: Path, model: Path, memory: str, **more) -> str:
        text = run(program, model, memory, "hello", "12",
                   env=environment(LD_LIBRARY_PATH=str(self.prefix / "lib"), **more))
        self.assertGreater(len(text.strip()), 0)
        return text

    def test_the_tree_is_whole(self) -> None:
        for name in ["bin/carat", "include/carat/carat.h", "include/carat/carat.hpp", "lib/libcarat.a",
                     "lib/libcarat.so", "lib/libcarat.so.0", "lib/pkgconfig/carat.pc",
                     "lib/cmake/carat/caratConfig.cmake", "lib/cmake/carat/caratConfigVersion.cmake",
                     "share/man/man1/carat.1", "share/bash-completion/completions/carat",
                     "share/zsh/site-functions/_carat", "share/fish/vendor_completions.d/carat.fish",
                     "share/doc/carat/LICENSE", "share/doc/carat/NOTICE"]:
            self.assertTrue((self.prefix / name).exists(), name)
        version = run("pkg-config", "--modversion", "carat", env=self.pkg_config).strip()
        self.assertEqual(run(self.prefix / "bin/carat", "--version", env=environment()), f"carat {version}\n")

    def test_the_libraries_show_the_documented_functions_and_nothing_else(self) -> None:
        header = (self.prefix / "include/carat/carat.h").read_text()
        declared = set(re.findall(r"CARAT_API [^;]*?\b(carat_\w+)\(", header))
        self.assertGreater(len(declared), 20)
        shared = run("nm", "-D", "--defined-only", self.prefix / "lib/libcarat.so").split("\n")
        names = {line.split()[-1].split("@")[0] for line in shared if line} - {"CARAT_0"}
        self.assertEqual(names, declared)
        static = run("nm", "--extern-only", "--defined-only", self.prefix / "lib/libcarat.a").split("\n")
        # Tables of inline functions, which the linker makes one of in the whole program, keep their names ("u").
        names = {line.split()[-1] for line in static if len(line.split()) == 3 and line.split()[1] != "u"}
        self.assertEqual(names, declared)
        self.assertIn("[libcarat.so.0]", run("readelf", "-d", self.prefix / "lib/libcarat.so"))

    def test_c_and_cpp_by_pkg_config(self) -> None:
        strict = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
        generate = self.folder / "generate"
        run("cc", "-std=c99", *strict, self.examples / "generate.c", *self.flags("--cflags", "--libs"), "-o", generate)
        text = self.generated(generate, self.model, "200M")
        told = run(self.prefix / "bin/carat", "run", self.model, "-p", "hello", "-n", "12", "--temp", "0", "-q",
                   env=environment())
        self.assertEqual(text, told)

        chat = self.folder / "chat"
        run("c++", "-std=c++17", *strict, self.examples / "chat.cpp", *self.flags("--cflags", "--libs"), "-o", chat)
        # A base model: the first message is refused, and the program goes on to the end of its input.
        done = subprocess.run([chat, self.model, "200M"], input="hello\n", capture_output=True, text=True,
                              env=environment(LD_LIBRARY_PATH=str(self.prefix / "lib")))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("chat template", done.stderr)

        static = self.folder / "generate_static"
        libraries = [flag for flag in self.flags("--static", "--libs") if flag != "-lcarat"]
        run("cc", self.examples / "generate.c", *self.flags("--cflags"), self.prefix / "lib/libcarat.a", *libraries,
            "-o", static)
        self.assertNotIn("libcarat", run("ldd", static))
        self.assertEqual(self.generated(static, self.model, "200M"), text)

    def test_by_cmake(self) -> None:
        build = self.folder / "build"
        run("cmake", "-S", self.examples, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCARAT_STATIC=ON",
            env=environment())
        run("cmake", "--build", build, env=environment())
        text = self.generated(build / "generate", self.model, "200M")
        self.assertEqual(self.generated(build / "generate_static", self.model, "200M"), text)
        self.assertNotIn("libcarat", run("ldd", build / "generate_static"))

    def test_a_real_model_inside_its_budget(self) -> None:
        folder = Path(os.environ.get("CARAT_MODELS") or Path.home() / ".cache/carat/models")
        if not (folder / "gemma3-270m.gguf").exists():
            self.skipTest("gemma3-270m has not been fetched (make models)")
        program = self.folder / "generate_real"
        run("cc", self.examples / "generate.c", *self.flags("--cflags", "--libs"), "-o", program)
        done = subprocess.run([program, "gemma3-270m", "420M", "Once upon a time"], capture_output=True, text=True,
                              env=environment(LD_LIBRARY_PATH=str(self.prefix / "lib"), CARAT_MODELS=str(folder)))
        self.assertEqual(done.returncode, 0, done.stderr)
        peak, budget = map(float, re.search(r"VmHWM ([\d.]+) MB of ([\d.]+) MB", done.stderr).groups())
        self.assertLessEqual(peak, budget)
        self.assertGreater(len(done.stdout), 60)

    def test_the_man_page_has_every_option_of_every_command(self) -> None:
        carat = self.prefix / "bin/carat"
        page = (self.prefix / "share/man/man1/carat.1").read_text().replace("\\-", "-")
        listed = run(carat, "--help", env=environment()).split("Subcommands:")[1]
        commands = re.findall(r"^  ([a-z]\w*) ", listed, re.MULTILINE)
        self.assertIn("run", commands)
        for command in commands:
            section = page.split(f'.SS "carat {command}"\n')
            self.assertEqual(len(section), 2, command)
            section = re.split(r"^\.S[SH]", section[1], maxsplit=1, flags=re.MULTILINE)[0]
            options = re.findall(r"^  (-[^ ]+)", run(carat, command, "--help", env=environment()), re.MULTILINE)
            self.assertGreater(len(options), 2, command)
            for name in [name for option in options for name in option.split(",")]:
                self.assertIn(f"\\fB{name}\\fR", section, command)
        if shutil.which("man") and shutil.which("groff"):
            done = subprocess.run(["man", "--warnings", "-l", self.prefix / "share/man/man1/carat.1"],
                                  capture_output=True, text=True, env=environment(MANPAGER="cat", LC_ALL="C.UTF-8"))
            self.assertEqual(done.stderr, "")
            self.assertIn("EXIT STATUS", done.stdout)

    def test_completions(self) -> None:
        script = self.prefix / "share/bash-completion/completions/carat"
        models = self.folder / "models"
        models.mkdir()
        (models / "gemma-tiny.gguf").touch()

        def completed(*words: str) -> list:
            line = " ".join(f"'{word}'" for word in words)
            command = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _carat; " \
                      "printf '%s\\n' \"${COMPREPLY[@]}\""
            return run("bash", "-c", command, env=environment(CARAT_MODELS=str(models))).split()

        self.assertEqual(completed("carat", "tok"), ["tokenize"])
        self.assertEqual(completed("carat", "run", "gemma"), ["gemma-tiny"])
        self.assertEqual(completed("carat", "run", "x", "--kv-global-b"), ["--kv-global-bytes"])
        self.assertEqual(completed("carat", "run", "x", "--head", ""), ["planes", "full"])
        for shell, file in [("zsh", "share/zsh/site-functions/_carat"),
                            ("fish", "share/fish/vendor_completions.d/carat.fish")]:
            text = (self.prefix / file).read_text()
            self.assertIn("kv-global-bytes", text)
            if shutil.which(shell):
                run(shell, "-n", self.prefix / file)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
