"""Running a program without Python: on one device, with nothing in it that needs the host.

Such an executable's record has the address of its program in `main`; `template` and `table_words` are the table of
pointers that the program takes (see `backends/cpu/runtime/dispatch.py`), with room for `inputs` and then `outputs`
addresses from word `first_input` on. `descriptions` has `DESCRIPTION_WORDS` words for each output: the number of the
argument whose memory it takes, plus one (0: memory of its own), and what its buffer's record starts as. `donated` has a
word for each argument, which is not 0 if the argument is given to the program; it is null if none is.

Memory of results comes from the pool, small ones' from the C library. The word `owned` of a buffer's record says whose
it is: 0 for Python's, which has a `Buffer` for it; `NOTHING` where it was given away; else its address, and the buffer
is native code's alone. Records for results are kept in a list of free ones.

Python is asked to run the program where that list runs short, an argument was deleted or is laid out otherwise than the
program takes it (`input_layouts`), or a donated one is not native code's alone or is not to be donated in this call.
"""

from __future__ import annotations

from hloom.backends.cpu.runtime.memory_pool import SMALLEST
from hloom.pjrt.c_api import ExecuteOptions, functions
from hloom.pjrt.records import record_words

DESCRIPTION_WORDS = 16
NOTHING = 1


def execute_text(python_slot: str) -> str:
    """LLVM IR of Execute and of what happens to the buffers that it makes; `python_slot` holds Python's answer."""
    fields = {field.name: field.offset for field in functions()["LoadedExecutable_Execute"].fields}
    executable = {name: 16 + 8 * i for i, name in enumerate(record_words("LoadedExecutable"))}
    buffer = {name: 16 + 8 * i for i, name in enumerate(record_words("Buffer"))}
    device = {name: 16 + 8 * i for i, name in enumerate(record_words("Device"))}
    kept = buffer["buffer_pointer"] - 16
    assert list(buffer)[-3:] == ["buffer_pointer", "references", "owned"] and kept <= 8 * (DESCRIPTION_WORDS - 1)
    words = {
        "nothing": NOTHING,
        "description": DESCRIPTION_WORDS,
        "kept": kept,
        **{f"a_{name}": offset for name, offset in fields.items()},
        **{f"e_{name}": offset for name, offset in executable.items()},
        **{f"b_{name}": offset for name, offset in buffer.items()},
        **{f"d_{name}": offset for name, offset in device.items()},
    }
    loops = [
        _for_each_donated("mark_donated", _MARK),
        _for_each_donated("unmark_donated", _UNMARK),
        _for_each_donated("drop_donated", _DROP),
        _for_each("fill_inputs(ptr %flags, ptr %list, ptr %layouts, ptr %inputs, i64 %count)", _FILL),
        _for_each("make_results(ptr %descriptions, ptr %table, ptr %list, ptr %inputs, i64 %count)", _MAKE),
        _for_each("unmake_results(ptr %descriptions, ptr %list, i64 %count)", _UNMAKE),
        _for_each("settle_results(ptr %descriptions, ptr %list, ptr %inputs, i64 %count)", _SETTLE),
    ]
    return (_TEXT + "\n".join(loops)).format(
        python=python_slot,
        smallest=SMALLEST,
        o_kept=ExecuteOptions.num_non_donatable_input_indices.offset,
        **words,
    )


def _for_each(function: str, body: str) -> str:
    """`i1 function(.., i64 %count)`: runs the body for each %i below %count; true.

    The body ends by going on at %passed; at %done no more follow.
    """
    return f"""
define internal i1 @{function} {{{{
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %passed ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %each, label %done
each:
{body}passed:
  %i.next = add nuw i64 %i, 1
  br label %next
done:
  ret i1 true
}}}}
"""


def _for_each_donated(name: str, body: str) -> str:
    """`i1 name(ptr flags, ptr list, i64 count)`: runs the body on every %item of the list whose flag is set; true."""
    return _for_each(f"{name}(ptr %flags, ptr %list, i64 %count)", _DONATED + body)


_DONATED = """  %none = icmp eq ptr %flags, null
  br i1 %none, label %done, label %look
look:
  %flag.p = getelementptr i64, ptr %flags, i64 %i
  %flag = load i64, ptr %flag.p, align 8
  %kept = icmp eq i64 %flag, 0
  br i1 %kept, label %passed, label %donated
donated:
  %item.p = getelementptr ptr, ptr %list, i64 %i
  %item = load ptr, ptr %item.p, align 8
"""
# Marks arguments as deleted; false, with nothing marked, if one of them cannot be donated.
_MARK = """  %owned = call i64 @word(ptr %item, i64 {b_owned})
  %native = icmp ugt i64 %owned, {nothing}
  %deleted = call i64 @word(ptr %item, i64 {b_is_deleted})
  %references = call i64 @word(ptr %item, i64 {b_references})
  %uses = or i64 %deleted, %references
  %free = icmp eq i64 %uses, 0
  %good = and i1 %native, %free
  br i1 %good, label %mark, label %undo
undo:
  %undone = call i1 @unmark_donated(ptr %flags, ptr %list, i64 %i)
  ret i1 false
mark:
  call void @put(ptr %item, i64 {b_is_deleted}, ptr inttoptr (i64 1 to ptr))
  br label %passed
"""
_UNMARK = """  call void @put(ptr %item, i64 {b_is_deleted}, ptr null)
  br label %passed
"""
# After the program: what was donated and became no result is free.
_DROP = """  %owned = call i64 @word(ptr %item, i64 {b_owned})
  %given = icmp eq i64 %owned, {nothing}
  br i1 %given, label %passed, label %drop
drop:
  call void @release_memory(ptr %item)
  call void @put(ptr %item, i64 {b_owned}, ptr inttoptr (i64 {nothing} to ptr))
  br label %passed
"""

# Puts the addresses of arguments into the table; false if one was deleted, but for what this call was given, or is
# laid out otherwise than the program takes it.
_FILL = """  %item.p = getelementptr ptr, ptr %list, i64 %i
  %item = load ptr, ptr %item.p, align 8
  %deleted = call i64 @word(ptr %item, i64 {b_is_deleted})
  %dead = icmp ne i64 %deleted, 0
  br i1 %dead, label %donated, label %alive
donated:
  %none.donated = icmp eq ptr %flags, null
  br i1 %none.donated, label %unfit, label %flagged
flagged:
  %flag.p = getelementptr i64, ptr %flags, i64 %i
  %flag = load i64, ptr %flag.p, align 8
  %is.donated = icmp ne i64 %flag, 0
  br i1 %is.donated, label %alive, label %unfit
unfit:
  ret i1 false
alive:
  %layout = call ptr @pointer(ptr %item, i64 {b_layout})
  %wanted.p = getelementptr ptr, ptr %layouts, i64 %i
  %wanted.layout = load ptr, ptr %wanted.p, align 8
  %as.wanted = icmp eq ptr %layout, %wanted.layout
  br i1 %as.wanted, label %fits, label %unfit
fits:
  %data = call ptr @pointer(ptr %item, i64 {b_buffer_pointer})
  %input.p = getelementptr ptr, ptr %inputs, i64 %i
  store ptr %data, ptr %input.p, align 8
  br label %passed
"""
# Fills the list of results with new records and the table with the addresses of their memory; false, with nothing
# taken, where there are no records or there is no memory left.
_MAKE = """  %record = call ptr @take_record()
  %none = icmp eq ptr %record, null
  br i1 %none, label %undo, label %got
got:
  %offset = mul i64 %i, {description}
  %description = getelementptr i64, ptr %descriptions, i64 %offset
  %words = getelementptr i8, ptr %description, i64 8
  %start = getelementptr i8, ptr %record, i64 16
  call void @llvm.memcpy.p0.p0.i64(ptr %start, ptr %words, i64 {kept}, i1 false)
  call void @put(ptr %record, i64 8, ptr null)
  call void @put(ptr %record, i64 {b_references}, ptr null)
  %donor = load i64, ptr %description, align 8
  %own = icmp eq i64 %donor, 0
  br i1 %own, label %allocate, label %inherit
allocate:
  %size = call i64 @word(ptr %record, i64 {b_on_device_size_in_bytes})
  %fresh = call i64 @hloom_pjrt_allocate(i64 %size)
  br label %placed
inherit:
  %number = sub i64 %donor, 1
  %input.p = getelementptr ptr, ptr %inputs, i64 %number
  %input = load ptr, ptr %input.p, align 8
  %inherited = call i64 @word(ptr %input, i64 {b_owned})
  br label %placed
placed:
  %address = phi i64 [ %fresh, %allocate ], [ %inherited, %inherit ]
  %memory = inttoptr i64 %address to ptr
  call void @put(ptr %record, i64 {b_buffer_pointer}, ptr %memory)
  call void @put(ptr %record, i64 {b_owned}, ptr %memory)
  %place = getelementptr ptr, ptr %list, i64 %i
  store ptr %record, ptr %place, align 8
  %entry.p = getelementptr ptr, ptr %table, i64 %i
  store ptr %memory, ptr %entry.p, align 8
  %full = icmp eq i64 %address, 0
  br i1 %full, label %undo.this, label %passed
undo.this:
  call void @hloom_pjrt_give_record(ptr %record)
  br label %undo
undo:
  %undone = call i1 @unmake_results(ptr %descriptions, ptr %list, i64 %i)
  ret i1 false
"""
_UNMAKE = """  %record.p = getelementptr ptr, ptr %list, i64 %i
  %record = load ptr, ptr %record.p, align 8
  %offset = mul i64 %i, {description}
  %description = getelementptr i64, ptr %descriptions, i64 %offset
  %donor = load i64, ptr %description, align 8
  %own = icmp eq i64 %donor, 0
  br i1 %own, label %memory, label %record.only
memory:
  %address = call i64 @word(ptr %record, i64 {b_owned})
  %size = call i64 @word(ptr %record, i64 {b_on_device_size_in_bytes})
  call void @hloom_pjrt_release(i64 %address, i64 %size)
  br label %record.only
record.only:
  call void @hloom_pjrt_give_record(ptr %record)
  br label %passed
"""
# After the program: results that took an argument's memory have it for good, the others are counted.
_SETTLE = """  %offset = mul i64 %i, {description}
  %description = getelementptr i64, ptr %descriptions, i64 %offset
  %donor = load i64, ptr %description, align 8
  %own = icmp eq i64 %donor, 0
  br i1 %own, label %count.it, label %inherit
count.it:
  %record.p = getelementptr ptr, ptr %list, i64 %i
  %record = load ptr, ptr %record.p, align 8
  call void @hloom_pjrt_count_bytes(ptr %record, i1 true)
  br label %passed
inherit:
  %number = sub i64 %donor, 1
  %input.p = getelementptr ptr, ptr %inputs, i64 %number
  %input = load ptr, ptr %input.p, align 8
  call void @put(ptr %input, i64 {b_owned}, ptr inttoptr (i64 {nothing} to ptr))
  br label %passed
"""


_TEXT = """
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)

@free_records = internal global ptr null
@hloom_pjrt_free_records = global i64 0
@free_records.lock = internal global i32 0
@hloom_pjrt_ready_event = global ptr null
@hloom_pjrt_take = global ptr null
@hloom_pjrt_give = global ptr null

define internal i64 @word(ptr %record, i64 %offset) alwaysinline {{
  %place = getelementptr i8, ptr %record, i64 %offset
  %value = load i64, ptr %place, align 8
  ret i64 %value
}}

define internal ptr @pointer(ptr %record, i64 %offset) alwaysinline {{
  %place = getelementptr i8, ptr %record, i64 %offset
  %value = load ptr, ptr %place, align 8
  ret ptr %value
}}

define internal void @put(ptr %record, i64 %offset, ptr %value) alwaysinline {{
  %place = getelementptr i8, ptr %record, i64 %offset
  store ptr %value, ptr %place, align 8
  ret void
}}

define internal void @lock_records() alwaysinline {{
entry:
  br label %try
try:
  %was = atomicrmw xchg ptr @free_records.lock, i32 1 acquire
  %held = icmp ne i32 %was, 0
  br i1 %held, label %try, label %done
done:
  ret void
}}

define internal void @unlock_records() alwaysinline {{
  store atomic i32 0, ptr @free_records.lock release, align 4
  ret void
}}

define internal void @change_free_records(i64 %change) alwaysinline {{
  %count = load i64, ptr @hloom_pjrt_free_records, align 8
  %new = add i64 %count, %change
  store i64 %new, ptr @hloom_pjrt_free_records, align 8
  ret void
}}

define void @hloom_pjrt_give_record(ptr %record) {{
  call void @lock_records()
  %head = load ptr, ptr @free_records, align 8
  store ptr %head, ptr %record, align 8
  store ptr %record, ptr @free_records, align 8
  call void @change_free_records(i64 1)
  call void @unlock_records()
  ret void
}}

define internal ptr @take_record() {{
entry:
  call void @lock_records()
  %head = load ptr, ptr @free_records, align 8
  %none = icmp eq ptr %head, null
  br i1 %none, label %done, label %some
some:
  %next = load ptr, ptr %head, align 8
  store ptr %next, ptr @free_records, align 8
  call void @change_free_records(i64 -1)
  br label %done
done:
  call void @unlock_records()
  ret ptr %head
}}

define i64 @hloom_pjrt_allocate(i64 %size) {{
entry:
  %large = icmp uge i64 %size, {smallest}
  br i1 %large, label %pool, label %library
pool:
  %take = load ptr, ptr @hloom_pjrt_take, align 8
  %taken = call i64 %take(i64 %size)
  ret i64 %taken
library:
  %more = add i64 %size, 64
  %rounded = and i64 %more, -64
  %made = call ptr @aligned_alloc(i64 64, i64 %rounded)
  %address = ptrtoint ptr %made to i64
  ret i64 %address
}}

define void @hloom_pjrt_release(i64 %address, i64 %size) {{
entry:
  %large = icmp uge i64 %size, {smallest}
  br i1 %large, label %pool, label %library
pool:
  %give = load ptr, ptr @hloom_pjrt_give, align 8
  call void %give(i64 %address, i64 %size)
  ret void
library:
  %memory = inttoptr i64 %address to ptr
  call void @free(ptr %memory)
  ret void
}}

define void @hloom_pjrt_count_bytes(ptr %record, i1 %more) {{
  %device = call ptr @pointer(ptr %record, i64 {b_device})
  %place = getelementptr i8, ptr %device, i64 {d_native_bytes}
  %size = call i64 @word(ptr %record, i64 {b_on_device_size_in_bytes})
  %negative = sub i64 0, %size
  %change = select i1 %more, i64 %size, i64 %negative
  %was = atomicrmw add ptr %place, i64 %change monotonic
  ret void
}}

define internal void @release_memory(ptr %record) {{
  %owned = call i64 @word(ptr %record, i64 {b_owned})
  %size = call i64 @word(ptr %record, i64 {b_on_device_size_in_bytes})
  call void @hloom_pjrt_count_bytes(ptr %record, i1 false)
  call void @hloom_pjrt_release(i64 %owned, i64 %size)
  ret void
}}

define internal void @bury_buffer(ptr %record) {{
entry:
  %null = icmp eq ptr %record, null
  br i1 %null, label %done, label %some
some:
  %owned = call i64 @word(ptr %record, i64 {b_owned})
  switch i64 %owned, label %release [ i64 0, label %bury
                                      i64 {nothing}, label %give ]
bury:
  call void @bury(ptr %record)
  ret void
release:
  call void @release_memory(ptr %record)
  br label %give
give:
  call void @hloom_pjrt_give_record(ptr %record)
  ret void
done:
  ret void
}}

define ptr @PJRT_LoadedExecutable_Execute(ptr %arguments) {{
entry:
  %executable = call ptr @pointer(ptr %arguments, i64 {a_executable})
  %main = call ptr @pointer(ptr %executable, i64 {e_main})
  %fast = icmp ne ptr %main, null
  br i1 %fast, label %fits, label %ask
fits:
  %devices = call i64 @word(ptr %arguments, i64 {a_num_devices})
  %one = icmp eq i64 %devices, 1
  %device = call ptr @pointer(ptr %arguments, i64 {a_execute_device})
  %here = icmp eq ptr %device, null
  %given = call i64 @word(ptr %arguments, i64 {a_num_args})
  %wanted = call i64 @word(ptr %executable, i64 {e_inputs})
  %same = icmp eq i64 %given, %wanted
  %options = call ptr @pointer(ptr %arguments, i64 {a_options})
  %kept = call i64 @word(ptr %options, i64 {o_kept})
  %none.kept = icmp eq i64 %kept, 0
  %flags = call ptr @pointer(ptr %executable, i64 {e_donated})
  %none.donated = icmp eq ptr %flags, null
  %free = or i1 %none.kept, %none.donated
  %good.1 = and i1 %one, %here
  %good.2 = and i1 %good.1, %same
  %good = and i1 %good.2, %free
  br i1 %good, label %start, label %ask
start:
  %lists = call ptr @pointer(ptr %arguments, i64 {a_argument_lists})
  %list = load ptr, ptr %lists, align 8
  %marked = call i1 @mark_donated(ptr %flags, ptr %list, i64 %given)
  br i1 %marked, label %fill, label %ask
fill:
  %words = call i64 @word(ptr %executable, i64 {e_table_words})
  %table = alloca ptr, i64 %words, align 16
  %template = call ptr @pointer(ptr %executable, i64 {e_template})
  %bytes = mul i64 %words, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %table, ptr %template, i64 %bytes, i1 false)
  %first = call i64 @word(ptr %executable, i64 {e_first_input})
  %inputs = getelementptr ptr, ptr %table, i64 %first
  %layouts = call ptr @pointer(ptr %executable, i64 {e_input_layouts})
  %filled = call i1 @fill_inputs(ptr %flags, ptr %list, ptr %layouts, ptr %inputs, i64 %given)
  br i1 %filled, label %arena, label %unmark
arena:
  %size = call i64 @word(ptr %executable, i64 {e_arena_bytes})
  %needed = icmp ne i64 %size, 0
  br i1 %needed, label %allocate, label %results
allocate:
  %taken = call i64 @hloom_pjrt_allocate(i64 %size)
  %taken.p = inttoptr i64 %taken to ptr
  store ptr %taken.p, ptr %table, align 8
  %failed = icmp eq i64 %taken, 0
  br i1 %failed, label %unmark, label %results
results:
  %outputs = getelementptr ptr, ptr %inputs, i64 %given
  %count = call i64 @word(ptr %executable, i64 {e_outputs})
  %descriptions = call ptr @pointer(ptr %executable, i64 {e_descriptions})
  %out.lists = call ptr @pointer(ptr %arguments, i64 {a_output_lists})
  %out.list = load ptr, ptr %out.lists, align 8
  %room = call i1 @make_results(ptr %descriptions, ptr %outputs, ptr %out.list, ptr %list, i64 %count)
  br i1 %room, label %run, label %give.up
give.up:
  call void @release_arena(ptr %table, i64 %size)
  br label %unmark
run:
  %status = call i32 %main(ptr %table)
  %settled = call i1 @settle_results(ptr %descriptions, ptr %out.list, ptr %list, i64 %count)
  %dropped = call i1 @drop_donated(ptr %flags, ptr %list, i64 %given)
  call void @release_arena(ptr %table, i64 %size)
  %events = call ptr @pointer(ptr %arguments, i64 {a_device_complete_events})
  %wants = icmp ne ptr %events, null
  br i1 %wants, label %event, label %done
event:
  %ready = load ptr, ptr @hloom_pjrt_ready_event, align 8
  store ptr %ready, ptr %events, align 8
  br label %done
done:
  ret ptr null
unmark:
  %unmarked = call i1 @unmark_donated(ptr %flags, ptr %list, i64 %given)
  br label %ask
ask:
  %error = call ptr @ask(ptr {python}, ptr %arguments)
  ret ptr %error
}}

define internal void @release_arena(ptr %table, i64 %size) {{
entry:
  %none = icmp eq i64 %size, 0
  br i1 %none, label %done, label %release
release:
  %arena = load i64, ptr %table, align 8
  call void @hloom_pjrt_release(i64 %arena, i64 %size)
  br label %done
done:
  ret void
}}
"""
