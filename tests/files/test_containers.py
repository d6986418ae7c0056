"""Modules in other files: compressed, in archives, folders and profiles, and functions that JAX exported."""

from __future__ import annotations

import base64
import contextlib
import gzip
import zipfile
import zlib
from pathlib import Path

import pytest

import hloom as hl
from hloom.files.containers import unpacked

TEXT = "HloModule {name}\nENTRY e {{ x = f32[{size}] parameter(0)\n  ROOT y = f32[{size}] negate(x) }}\n"
# jax.export.export(jax.jit(lambda x: jax.numpy.tanh(x)))(jax.numpy.ones(4)).serialize(), by JAX 0.10.2, compressed
EXPORTED = (
    r"""c-nPS!EVz)5S`6<*{0jbwL%o4V3jHgX#`DLXayB%0Z~v7MJ><+5(w96UB#8{Sh1b95(hqj58%Lo1E0c?4?yA{fFD3%)=6lP=&qh-"""
    r"""=FPnEt~J{NfV;2{Z{Q{D!7gmW7BLT?MeGVJ!A)3z>u?R!+Jvic1unxZ%)k_AQ~~gsuunK7bO_!A-lwYR)PBsI;~n7x;S+&T?lajh"""
    r"""Bm5$4qS9fSQ|lrN6R}2!e-8!}O=}aJvMZAs>i=~6=kwf)*lv5y*7lCoUv4a~HkN>uIOAD{5`~^GqWws+MWIW*B6TSVv~^jQWnE&C"""
    r"""7(Gv{EK0_ujv`+aneTH3a-K7*H54+ZBSpHwfEzr|3uck=qFFY1sW2zZ`3f&Dav>hS;-<3v%)BA^9AY!aDgtpehj-S@d9z|x&03u?"""
    r"""_OQlSmSr+^G_uqec~;xu>=|)FTSvxmm!Z(=$R)}G@FyiIL8chIL}>;;uud14H}m-#FIDSn)q-K@(r72H7rO!UJ6;$3?qT9NaFhfG"""
    r"""^j9FZgO1g|1wAKDdVyk^u^%@3u5;2nX*#Ek@C=Ua(?$|Gkrj39(6Pd<cjk9{VaJVp@Tq4bNPH`_d$Ak4-5@&WdQRxM2X+L<Zfsee"""
    r"""?Y9qYI91U?YZz_Ro9YBG4xu$X-^Ra1=@EKPlz6e_21i{O`rzAituSfRS753nc#X-$<=gkx@&0%=)R-NF$$w{QYcLp${k;kQ+u-6E"""
    r"""dpoL|CCtzUdL;rbrQSuFucVn8O(u;dy|<xWy_*@3Y4vp4DP2lRzRGARH`cO|ucdqF|NU{a{s7{QnVJ"""
)


def text(name: str, size: int = 2) -> str:
    return TEXT.format(name=name, size=size)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A folder as XLA dumps one: stages of two modules, and reports on them."""
    folder = tmp_path / "dump"
    folder.mkdir()
    for number, size in ((1, 2), (2, 1000)):
        start = f"module_000{number}.jit_f{number}"
        for stage in (".before_optimizations.txt", ".cpu_after_optimizations.txt"):
            (folder / f"{start}{stage}").write_text(text(f"jit_f{number}{stage[1:3]}", size))
        (folder / f"{start}.cpu_after_optimizations-buffer-assignment.txt").write_text("BufferAssignment:\n")
        (folder / f"{start}.debug_options").write_text("xla_dump_to: x")
        (folder / start).mkdir()
    return folder


def message(*fields: tuple[int, bytes]) -> bytes:
    """A serialised message of fields of bytes, shorter than 128."""
    assert all(len(content) < 128 for _, content in fields)
    return b"".join(bytes([number << 3 | 2, len(content)]) + content for number, content in fields)


def test_a_compressed_file_is_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "m.txt.gz").write_bytes(gzip.compress(text("m").encode()))
    assert hl.load(tmp_path / "m.txt.gz").name == "m"
    assert hl.compile(str(tmp_path / "m.txt.gz"), "interpreter") is not None


def test_a_folder_of_one_module_is_the_module_as_given(dump: Path) -> None:
    for file in dump.glob("module_0002*.txt"):
        file.unlink()
    assert hl.load(dump).name == "jit_f1be"


def test_a_folder_of_several_lists_the_largest_as_given_first(dump: Path) -> None:
    with pytest.raises(hl.HloomError, match=r"holds 4 modules: give one of them\n") as error:
        hl.load(dump)
    listed = [line.strip() for line in str(error.value).split("\n")[1:]]
    assert listed[0] == str(dump / "module_0002.jit_f2.before_optimizations.txt") and len(listed) == 4
    assert [hl.load(path).name for path in listed] == ["jit_f2be", "jit_f1be", "jit_f2cp", "jit_f1cp"]


def test_an_archive_is_like_the_folder(dump: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "dump.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in dump.glob("*.txt"):
            archive.write(file, file.name)
    with pytest.raises(hl.HloomError, match="holds 4 modules"):
        hl.load(tmp_path / "dump.zip")
    assert hl.load(tmp_path / "dump.zip" / "module_0001.jit_f1.before_optimizations.txt").name == "jit_f1be"
    with pytest.raises(hl.HloomError, match=r"there is no module_3 in it"):
        hl.load(tmp_path / "dump.zip" / "module_3")


def test_a_profile_has_the_modules_that_ran(tmp_path: Path) -> None:
    """The fields of XSpace: planes = 1; event_metadata = 4, a map; name = 2, stats = 5; bytes_value = 6."""
    module = hl.parse("HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }")
    hl.save(module, tmp_path / "m.pb")
    proto = (tmp_path / "m.pb").read_bytes()

    def field(number: int, content: bytes) -> bytes:
        length = bytes([len(content) & 127 | 128, len(content) >> 7])
        return bytes([number << 3 | 2]) + length + content

    held = field(5, b"\x08\x07" + field(6, field(1, proto)))
    entries = [field(4, b"\x08\x01" + field(2, message((2, name)) + held)) for name in (b"jit_f(1)", b"jit_g(2)")]
    space = field(1, message((2, b"/host:CPU"))) + field(1, message((2, b"/host:metadata")) + b"".join(entries))
    (tmp_path / "vm.xplane.pb").write_bytes(space)
    with pytest.raises(hl.HloomError, match=r"holds 2 modules.*\n.*jit_f\(1\)\n.*jit_g\(2\)"):
        hl.load(tmp_path / "vm.xplane.pb")
    assert hl.load(tmp_path / "vm.xplane.pb" / "jit_g(2)").name == "m"


def test_a_function_that_jax_exported_is_its_stablehlo() -> None:
    """The bytes from the first of MLIR's bytecode to the end that the length before them gives."""
    content = zlib.decompress(base64.b85decode(EXPORTED))
    start = content.index(b"ML\xefR")
    length = int.from_bytes(content[start - 4 : start], "little")
    assert unpacked(content) == content[start : start + length] and length > 300


@pytest.mark.long
def test_a_function_that_jax_exported_runs(tmp_path: Path) -> None:
    pytest.importorskip("jaxlib")
    (tmp_path / "f.jax_export").write_bytes(zlib.decompress(base64.b85decode(EXPORTED)))
    assert hl.load(tmp_path / "f.jax_export").entry.root.opcode == "tanh"


def test_damaged_files_give_errors(tmp_path: Path) -> None:
    """Truncated files and changed bytes of each kind of file: an error of hloom or a module, and no other exception."""
    exported = zlib.decompress(base64.b85decode(EXPORTED))
    packed = gzip.compress(text("m").encode())
    with zipfile.ZipFile(tmp_path / "m.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m.hlo", text("m"))
    for content in (exported, packed, (tmp_path / "m.zip").read_bytes(), b"/host:metadata\x80" * 20):
        for at in range(0, len(content), 3):
            for damaged in (content[:at], content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]):
                with contextlib.suppress(hl.HloomError):
                    unpacked(damaged)


def test_what_holds_no_module_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(hl.HloomError, match="there is no module in"):
        hl.load(tmp_path / "empty")
    with pytest.raises(hl.HloomError, match="cannot read"):
        hl.load(tmp_path / "missing" / "m.hlo")
    (tmp_path / "m.hlo").write_text(text("m"))
    with pytest.raises(hl.HloomError, match="there is no inner in it|no module"):
        hl.load(tmp_path / "m.hlo" / "inner")
