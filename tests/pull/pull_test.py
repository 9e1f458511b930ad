#!/usr/bin/env python3
"""`carat pull` against a hub on this machine.  Usage: pull_test.py CARAT FIXTURES"""

import hashlib
import json
import os
import signal
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from hub import Hub, git_id  # noqa: E402

CARAT = Path(sys.argv[1]).resolve()
FIXTURES = Path(sys.argv[2]).resolve()
MODEL = (FIXTURES / "tiny/gemma3-gqa42/model.gguf").read_bytes()
FOLDER = FIXTURES / "tiny/gemma3-vision"
REPOSITORY = "some-owner/some.repo-GGUF"


class PullTest(unittest.TestCase):
    def setUp(self) -> None:
        self.hub = Hub()
        self.addCleanup(self.hub.close)
        self.folder = Path(tempfile.mkdtemp(prefix="carat-pull-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.models = self.folder / "models"
        self.hub.files[REPOSITORY] = {"tiny.gguf": MODEL, "README.md": b"read me"}

    def environment(self, **more) -> dict:
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("CARAT_", "HF_")) and not name.lower().endswith("_proxy")}
        return {**kept, "CARAT_MODELS": str(self.models), "CARAT_HUB": self.hub.url, **more}

    def pull(self, *arguments: str, code: int = 0, **environment) -> subprocess.CompletedProcess:
        done = subprocess.run([CARAT, "pull", *arguments], capture_output=True, text=True, timeout=60,
                              env=self.environment(**environment))
        self.assertEqual(done.returncode, code, done.stderr)
        if code != 0:
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertTrue(done.stderr.startswith("carat: error: "), done.stderr)
        return done

    def kept(self) -> list[str]:
        """Everything under the models folder, unfinished files too."""
        return sorted(str(path.relative_to(self.models)) for path in self.models.rglob("*"))

    def cut_and_leave(self) -> None:
        """A pull that 5000 bytes came of."""
        self.hub.cut, self.hub.gone = [5000], True
        self.pull(f"hf:{REPOSITORY}:tiny.gguf", code=2)
        self.hub.gone = False

    # --- What is fetched ---

    def test_a_file_comes_whole_and_runs(self) -> None:
        done = self.pull(f"hf:{REPOSITORY}:tiny.gguf")
        self.assertEqual(done.stdout, f"{self.models}/tiny.gguf\n")
        self.assertEqual(self.kept(), ["tiny.gguf"])
        self.assertEqual((self.models / "tiny.gguf").read_bytes(), MODEL)
        ran = subprocess.run([CARAT, "run", "tiny", "-p", "hi", "-n", "3", "-q"], capture_output=True, text=True,
                             env=self.environment())
        self.assertEqual(ran.returncode, 0, ran.stderr)
        before = len(self.hub.asked("store"))
        self.assertIn("was there already", self.pull(f"hf:{REPOSITORY}:tiny.gguf").stderr)
        self.assertLessEqual(len(self.hub.asked("store")), before + 1)

    def test_the_one_gguf_of_a_repository(self) -> None:
        self.hub.files[REPOSITORY]["mmproj-model.gguf"] = MODEL
        told = json.loads(self.pull(f"hf:{REPOSITORY}", "--json", "--as", "mine").stdout)
        self.assertEqual(told["path"], f"{self.models}/mine.gguf")
        self.assertEqual(told["files"][0]["sha256"], hashlib.sha256(MODEL).hexdigest())
        self.assertEqual(told["bytes"], len(MODEL))
        self.assertEqual(self.kept(), ["mine.gguf"])
        self.hub.files[REPOSITORY]["other.gguf"] = MODEL
        refused = self.pull(f"hf:{REPOSITORY}", "--as", "again", code=2)
        self.assertIn("has 2 models", refused.stderr)
        self.assertIn("other.gguf", refused.stderr)
        self.assertIn("tiny.gguf", refused.stderr)

    def test_a_split_model_comes_with_all_its_parts(self) -> None:
        parts = {f"q4/big-0000{i}-of-00003.gguf": MODEL + bytes(i) for i in (1, 2, 3)}
        self.hub.files[REPOSITORY] = dict(parts)
        told = json.loads(self.pull(f"hf:{REPOSITORY}", "--json").stdout)
        self.assertEqual(told["path"], f"{self.models}/big-00001-of-00003.gguf")
        self.assertEqual(self.kept(), [f"big-0000{i}-of-00003.gguf" for i in (1, 2, 3)])
        self.pull(f"hf:{REPOSITORY}:q4/big-00002-of-00003.gguf", "--as", "x")
        self.assertIn("x-00003-of-00003.gguf", self.kept())

    def test_a_model_folder_is_what_carat_reads_of_it(self) -> None:
        files = {path.name: path.read_bytes() for path in FOLDER.iterdir()}
        self.hub.files["o/folder"] = {**files, "LICENSE": b"terms", "flax_model.msgpack": b"x" * 2000,
                                      "onnx/model.onnx": b"y" * 2000, "pytorch_model.bin": b"z" * 2000}
        told = json.loads(self.pull("hf:o/folder", "--json").stdout)
        self.assertEqual(told["path"], f"{self.models}/folder")
        self.assertEqual(sorted(path.name for path in (self.models / "folder").iterdir()),
                         ["LICENSE", "config.json", "model.safetensors"])
        licence = next(file for file in told["files"] if file["path"].endswith("LICENSE"))
        self.assertEqual(licence["git_id"], git_id(b"terms"))
        info = subprocess.run([CARAT, "info", "folder", "--json"], capture_output=True, env=self.environment())
        self.assertEqual(info.returncode, 0)
        # All of one state of the repository.
        self.assertTrue(all("/resolve/" + "c" * 40 in path for host, path, _ in self.hub.requests
                            if host == "hub" and "/resolve/" in path))
        self.assertTrue(json.loads(self.pull("hf:o/folder", "--json").stdout)["was_there"])
        self.hub.files["o/folder"]["config.json"] += b" "
        self.assertIn("config.json is not the hub's", self.pull("hf:o/folder", code=2).stderr)

    def test_a_known_name_is_kept_under_itself(self) -> None:
        self.hub.files["unsloth/gemma-3-270m-GGUF"] = {"gemma-3-270m-Q4_K_M.gguf": MODEL}
        self.pull("gemma3-270m")
        self.assertEqual(self.kept(), ["gemma3-270m.gguf"])
        asked = len(self.hub.requests)
        self.assertIn("was there already", self.pull("gemma3-270m").stderr)
        self.assertEqual(len(self.hub.requests), asked, "a name that is there asks nobody")

    # --- What goes wrong on the way ---

    def test_a_cut_transfer_goes_on_where_it_broke_off(self) -> None:
        self.hub.cut = [5000, 7000]
        self.pull(f"hf:{REPOSITORY}:tiny.gguf")
        self.assertEqual((self.models / "tiny.gguf").read_bytes(), MODEL)
        ranges = [headers.get("range") for headers in self.hub.asked("store")]
        self.assertEqual(ranges, [None, "bytes=5000-", "bytes=12000-"])

    def test_a_later_run_goes_on_with_what_an_earlier_one_left(self) -> None:
        self.cut_and_leave()
        self.assertIn(".pull/tiny.gguf/tiny.gguf.partial", self.kept())
        self.assertFalse((self.models / "tiny.gguf").exists())
        self.hub.requests.clear()
        self.pull(f"hf:{REPOSITORY}:tiny.gguf")
        self.assertEqual([headers.get("range") for headers in self.hub.asked("store")], ["bytes=5000-"])
        self.assertEqual((self.models / "tiny.gguf").read_bytes(), MODEL)
        self.assertEqual(self.kept(), ["tiny.gguf"])

    def test_what_goes_on_is_the_same_file(self) -> None:
        self.cut_and_leave()
        changed = bytes(reversed(MODEL))
        self.hub.files[REPOSITORY]["tiny.gguf"] = changed
        self.pull(f"hf:{REPOSITORY}:tiny.gguf")
        self.assertEqual((self.models / "tiny.gguf").read_bytes(), changed)

    def test_a_host_without_ranges_sends_all_again(self) -> None:
        self.hub.cut = [5000]
        self.hub.no_ranges = True
        self.pull(f"hf:{REPOSITORY}:tiny.gguf")
        self.assertEqual((self.models / "tiny.gguf").read_bytes(), MODEL)

    def test_another_entity_tag_sends_all_again(self) -> None:
        self.hub.cut = [5000]
        self.hub.etag_changes = True
        self.pull(f"hf:{REPOSITORY}:tiny.gguf")
        self.assertEqual((self.models / "tiny.gguf").read_bytes(), MODEL)

    def test_a_busy_host_is_asked_again(self) -> None:
        self.hub.busy = 1
        self.pull(f"hf:{REPOSITORY}:tiny.gguf")
        self.hub.busy = 99
        self.assertIn("503", self.pull(f"hf:{REPOSITORY}:tiny.gguf", "--as", "other", code=2).stderr)
        self.assertEqual(self.kept(), ["tiny.gguf"])

    def test_a_wrong_byte_is_found_and_nothing_is_kept(self) -> None:
        self.hub.wrong_byte = True
        self.assertIn("SHA-256", self.pull(f"hf:{REPOSITORY}:tiny.gguf", code=2).stderr)
        self.assertEqual(self.kept(), [])

    def test_a_file_without_a_digest_is_refused(self) -> None:
        self.hub.no_digest = True
        self.assertIn("verified", self.pull(f"hf:{REPOSITORY}:tiny.gguf", code=2).stderr)
        self.assertEqual(self.kept(), [])

    def test_a_digest_that_contradicts_the_list_is_refused(self) -> None:
        self.hub.listed[REPOSITORY] = [{"rfilename": "tiny.gguf", "size": len(MODEL),
                                        "lfs": {"sha256": "0" * 64, "size": len(MODEL)}}]
        self.assertIn("another SHA-256", self.pull(f"hf:{REPOSITORY}", code=2).stderr)
        self.assertEqual(self.kept(), [])

    def test_interrupted_it_keeps_what_came(self) -> None:
        big = os.urandom(32 << 20)
        self.hub.files[REPOSITORY]["big.gguf"] = big
        process = subprocess.Popen([CARAT, "pull", f"hf:{REPOSITORY}:big.gguf"], stderr=subprocess.PIPE, text=True,
                                   env=self.environment())
        partial = self.models / ".pull/big.gguf/big.gguf.partial"
        end = time.monotonic() + 30
        while time.monotonic() < end and not (partial.exists() and partial.stat().st_size > 0):
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        # A quick machine may have been through.
        self.assertIn(process.returncode, (0, 130), errors)
        if process.returncode == 130:
            self.assertIn("pull again", errors)
        self.pull(f"hf:{REPOSITORY}:big.gguf")
        self.assertEqual(hashlib.sha256((self.models / "big.gguf").read_bytes()).digest(), hashlib.sha256(big).digest())

    def test_a_full_disk_is_one_line(self) -> None:
        command = f"ulimit -f 64; exec {CARAT} pull hf:{REPOSITORY}:tiny.gguf"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=self.environment())
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("cannot write", done.stderr)
        self.assertFalse((self.models / "tiny.gguf").exists())
        self.pull(f"hf:{REPOSITORY}:tiny.gguf")
        self.assertEqual((self.models / "tiny.gguf").read_bytes(), MODEL)

    # --- Refusals ---

    def test_tokens_go_to_the_hub_and_nowhere_else(self) -> None:
        self.hub.token = "hf_secret"
        refused = self.pull(f"hf:{REPOSITORY}:tiny.gguf", code=2).stderr
        self.assertIn("401", refused)
        self.assertIn("HF_TOKEN", refused)
        self.assertIn("does not open", self.pull(f"hf:{REPOSITORY}", code=2, HF_TOKEN="wrong").stderr)
        for variable in ("HF_TOKEN", "CARAT_HUB_TOKEN"):
            self.pull(f"hf:{REPOSITORY}:tiny.gguf", "--as", variable, **{variable: "hf_secret"})
        self.assertGreater(len(self.hub.asked("store")), 0)
        for headers in self.hub.asked("store"):
            self.assertNotIn("authorization", headers)
        self.assertIn("spaces", self.pull(f"hf:{REPOSITORY}", code=2, HF_TOKEN="a\r\nX-Other: b").stderr)

    def test_redirects_to_elsewhere_are_not_followed(self) -> None:
        secret = self.folder / "secret"
        secret.write_text("x")
        for target in (f"file://{secret}", "ftp://127.0.0.1/x"):
            self.hub.redirect = target
            self.assertIn("https://", self.pull(f"hf:{REPOSITORY}:tiny.gguf", code=2).stderr)
        self.hub.redirect = f"{self.hub.url}/{REPOSITORY}/resolve/main/tiny.gguf"
        self.assertIn("redirects", self.pull(f"hf:{REPOSITORY}:tiny.gguf", code=2).stderr)
        self.assertEqual(self.kept(), [])

    def test_what_is_not_there(self) -> None:
        self.assertIn("tiny.gguf", self.pull(f"hf:{REPOSITORY}:gone.gguf", code=2).stderr)
        self.assertIn("no such repository", self.pull("hf:nobody/nothing", code=2).stderr)
        self.hub.files["o/empty"] = {"README.md": b"x"}
        self.assertIn("neither", self.pull("hf:o/empty", code=2).stderr)
        for name in ("gemma9", "hf:one", "hf:a/b/c", "hf:../..", "hf:a/..", "hf:a/b:", "hf:a/b:../x", "hf:a/b:/x"):
            self.pull(name, code=2)
        self.pull(f"hf:{REPOSITORY}", "--as", "../x", code=2)
        self.assertIn("known are gemma3-270m", self.pull("gemma9", code=2).stderr)
        self.assertEqual(list(self.folder.rglob("*.gguf")), [])

    def test_hostile_lists(self) -> None:
        digest = {"sha256": hashlib.sha256(MODEL).hexdigest(), "size": len(MODEL)}
        for name in ("../x.gguf", "/etc/x.gguf", "a/../../x.gguf", "a//x.gguf", "x\u0000.gguf", "x\n.gguf", "", ".."):
            self.hub.listed[REPOSITORY] = [{"rfilename": name, "lfs": digest}]
            self.pull(f"hf:{REPOSITORY}", code=2)
        for siblings in ("text", [1], [{}], [{"rfilename": 5}], [{"rfilename": "x.gguf", "lfs": {"sha256": "short"}}],
                         [{"rfilename": f"{i}" * 40} for i in range(100000)]):
            self.hub.listed[REPOSITORY] = siblings
            self.pull(f"hf:{REPOSITORY}", code=2)
        self.assertEqual(sorted(self.folder.rglob("*.gguf")), [])

    def test_what_exists_is_never_overwritten(self) -> None:
        self.models.mkdir()
        (self.models / "tiny.gguf").write_bytes(b"mine")
        self.assertIn("--as", self.pull(f"hf:{REPOSITORY}:tiny.gguf", code=2).stderr)
        self.assertEqual((self.models / "tiny.gguf").read_bytes(), b"mine")
        (self.models / "link.gguf").symlink_to(self.folder / "nowhere")
        self.pull(f"hf:{REPOSITORY}:tiny.gguf", "--as", "link", code=2)
        self.assertFalse((self.folder / "nowhere").exists())

    def test_two_at_once_do_not_mix(self) -> None:
        self.hub.files[REPOSITORY]["big.gguf"] = os.urandom(8 << 20)
        codes = []

        def one() -> None:
            done = subprocess.run([CARAT, "pull", f"hf:{REPOSITORY}:big.gguf"], capture_output=True,
                                  env=self.environment())
            codes.append(done.returncode)

        threads = [threading.Thread(target=one) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertIn(0, codes)
        self.assertTrue(set(codes) <= {0, 2}, codes)
        self.assertEqual((self.models / "big.gguf").read_bytes(), self.hub.files[REPOSITORY]["big.gguf"])
        self.assertEqual(self.kept(), ["big.gguf"])

    def test_no_hub_at_all(self) -> None:
        self.hub.close()
        self.assertIn("CARAT_HUB", self.pull(f"hf:{REPOSITORY}", code=2).stderr)
        self.assertIn("URL", self.pull(f"hf:{REPOSITORY}", "--hub", "nowhere", code=2).stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
