"""The declared C interface: the layout of its structures, and calls without a framework."""

import ctypes

import pytest

from hloom.pjrt import api_address
from hloom.pjrt.c_api import EXTENSIONS, VERSION, arguments_structure, functions, structures
from hloom.pjrt.native.api import code
from hloom.pjrt.native.memory import PYTHON_FUNCTIONS
from hloom.system.python_api import c_address

(_, OWN), *OTHERS = structures()


@pytest.fixture(scope="module")
def api():
    count = 5 + OWN
    return (ctypes.c_uint64 * count).from_address(api_address())


def call(api, name: str, **fields: int):
    """Calls a function of the structure; returns its argument structure and the handle of the error."""
    structure = arguments_structure(name)
    arguments = structure(struct_size=ctypes.sizeof(structure), **fields)
    function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(api[5 + list(functions()).index(name)])
    return arguments, function(ctypes.addressof(arguments))


def text(api, error: int) -> tuple[str, int]:
    message, _ = call(api, "Error_Message", error=error)
    code, _ = call(api, "Error_GetCode", error=error)
    return ctypes.string_at(message.message, message.message_size).decode(), code.code


def test_the_structure_has_its_size_and_version(api):
    assert api[0] == 8 * (5 + OWN)
    assert (api[4] & 0xFFFFFFFF, api[4] >> 32) == VERSION
    assert api[3] == 0 and all(api[4:])
    following = api[1]
    for kind, count in OTHERS:
        extension = (ctypes.c_uint64 * (3 + count)).from_address(following)
        assert extension[0] == 8 * len(extension) and extension[1] == kind and all(extension[3:])
        following = extension[2]
    assert [kind for kind, _ in OTHERS] == [*EXTENSIONS] and following == 0


# Sizes and offsets from the public header, by a C compiler.
@pytest.mark.parametrize(
    ("name", "size", "field", "offset"),
    [
        ("Client_Create", 88, "client", 64),
        ("Client_Compile", 56, "executable", 48),
        ("Client_BufferFromHostBuffer", 120, "buffer", 112),
        ("LoadedExecutable_Execute", 80, "execute_device", 72),
        ("Buffer_ToHostBuffer", 56, "event", 48),
        ("Client_LookupDevice", 40, "device", 32),
    ],
)
def test_layout_of_arguments(name, size, field, offset):
    structure = arguments_structure(name)
    declared = {f.name: f.offset for f in functions()[name].fields}
    assert declared[field] == offset == getattr(structure, field).offset
    assert ctypes.sizeof(structure) == size or name == "Client_Create"


def test_native_getters_copy_from_records(api):
    client, error = call(api, "Client_Create")
    assert not error
    name, _ = call(api, "Client_PlatformName", client=client.client)
    assert ctypes.string_at(name.platform_name, name.platform_name_size) == b"hloom"
    devices, _ = call(api, "Client_Devices", client=client.client)
    handles = (ctypes.c_uint64 * devices.num_devices).from_address(devices.devices)
    for number, handle in enumerate(handles):
        found, _ = call(api, "Client_LookupDevice", client=client.client, id=number)
        assert found.device == handle
        local, _ = call(api, "Device_LocalHardwareId", device=handle)
        assert local.local_hardware_id == number


def test_unimplemented_functions_return_an_error(api):
    for name in ("Event_Set", "Client_CreateAliasBuffer"):
        structure = ctypes.c_uint64 * 8
        arguments = structure()
        function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(api[5 + list(functions()).index(name)])
        error = function(ctypes.addressof(arguments))
        assert text(api, error) == (f"PJRT_{name} is not implemented by hloom", 12)
        call(api, "Error_Destroy", error=error)
        assert text(api, error)[1] == 12  # it is the same error the next time


def test_exceptions_become_errors_of_the_interface(api):
    client, _ = call(api, "Client_Create")
    _, error = call(api, "Client_LookupDevice", client=client.client, id=999)
    message, code = text(api, error)
    assert code == 3 and "there is no device 999" in message
    call(api, "Error_Destroy", error=error)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_before_the_handler_runs_is_an_error(api):
    @ctypes.CFUNCTYPE(*[ctypes.c_uint64] * 4)
    def interrupted(*_):
        raise KeyboardInterrupt

    client, _ = call(api, "Client_Create")
    python, index = code().state.python, PYTHON_FUNCTIONS.index("Client_LookupDevice")
    handler = python[index]
    python[index] = c_address(interrupted)
    found, error = call(api, "Client_LookupDevice", client=client.client, id=0)
    python[index] = handler
    assert not found.device and text(api, error) == ("the run was interrupted (Ctrl-C)", 10)
