"""Arrays between the host and native code's buffers, without Python: small ones in, and views of all out.

`BufferFromHostBuffer` copies a dense array into memory of native code's own; the sizes that the framework may ask for
later stand at the end of the buffer's record. Python is asked about arrays with other strides or a layout, and about
large ones that may be shared instead of copied.
"""

from __future__ import annotations

from hloom.pjrt.c_api import BUFFER_TYPES, functions
from hloom.pjrt.records import RECORD_WORDS, record_words
from hloom.types import BY_NAME

SMALLEST_SHARED = 64 << 10
"""Host arrays below so many bytes are copied: that costs less than to tell the host when they are free again."""
ZERO_COPY = 2
"""PJRT_HostBufferSemantics_kImmutableZeroCopy: the host's memory stays as it is while the buffer lives."""


def most_sizes() -> int:
    """Arrays of fewer dimensions have room for their sizes in their buffer's record."""
    return RECORD_WORDS - 2 - len(record_words("Buffer"))


def host_text(from_host_slot: str, reference_slot: str) -> str:
    """LLVM IR of the two functions; the slots hold Python's answers."""
    fields = {field.name: field.offset for field in functions()["Client_BufferFromHostBuffer"].fields}
    words = {
        f"{letter}_{name}": 16 + 8 * i
        for letter, kind in (("b", "Buffer"), ("d", "Device"), ("m", "Memory"))
        for i, name in enumerate(record_words(kind))
    }
    first_size = 2 + len(record_words("Buffer"))
    sizes = [BY_NAME[name].byte_width if name in BY_NAME and BY_NAME[name].is_array else 0 for name in BUFFER_TYPES]
    return _TEXT.format(
        types=len(sizes),
        type_sizes=", ".join(f"i64 {size}" for size in sizes),
        most_sizes=most_sizes(),
        sizes=8 * first_size,
        descending=", ".join(f"i64 {d}" for d in reversed(range(most_sizes()))),
        shared=SMALLEST_SHARED,
        zero_copy=ZERO_COPY,
        from_host=from_host_slot,
        increase=reference_slot,
        **{f"a_{name}": offset for name, offset in fields.items()},
        **words,
    )


_TEXT = """
@hloom_pjrt_layouts = global [{most_sizes} x ptr] zeroinitializer
@minor_to_major = internal constant [{most_sizes} x i64] [{descending}]
@type_sizes = internal constant [{types} x i64] [{type_sizes}]

define internal void @put_number(ptr %record, i64 %offset, i64 %value) alwaysinline {{
  %place = getelementptr i8, ptr %record, i64 %offset
  store i64 %value, ptr %place, align 8
  ret void
}}

; The bytes of a dense array; -1 where the strides are not those of one.
define internal i64 @dense_size(ptr %sizes, i64 %rank, ptr %strides, i64 %item) {{
entry:
  %any = icmp eq ptr %strides, null
  br label %next
next:
  %d = phi i64 [ %rank, %entry ], [ %before, %fits ]
  %size = phi i64 [ %item, %entry ], [ %more, %fits ]
  %done = icmp eq i64 %d, 0
  br i1 %done, label %dense, label %dimension
dimension:
  %before = sub i64 %d, 1
  %size.p = getelementptr i64, ptr %sizes, i64 %before
  %extent = load i64, ptr %size.p, align 8
  %more = mul i64 %size, %extent
  br i1 %any, label %fits, label %compare
compare:
  %stride.p = getelementptr i64, ptr %strides, i64 %before
  %stride = load i64, ptr %stride.p, align 8
  %same = icmp eq i64 %stride, %size
  %one = icmp eq i64 %extent, 1
  %good = or i1 %same, %one
  br i1 %good, label %fits, label %sparse
fits:
  br label %next
dense:
  ret i64 %size
sparse:
  ret i64 -1
}}

define ptr @PJRT_Client_BufferFromHostBuffer(ptr %arguments) {{
entry:
  %layout = call ptr @pointer(ptr %arguments, i64 {a_device_layout})
  %plain = icmp eq ptr %layout, null
  %rank = call i64 @word(ptr %arguments, i64 {a_num_dims})
  %short = icmp ult i64 %rank, {most_sizes}
  %type.p = getelementptr i8, ptr %arguments, i64 {a_type}
  %type.32 = load i32, ptr %type.p, align 4
  %type = zext i32 %type.32 to i64
  %known = icmp ult i64 %type, {types}
  %good.1 = and i1 %plain, %short
  %good = and i1 %good.1, %known
  br i1 %good, label %measure, label %ask
measure:
  %item.p = getelementptr [{types} x i64], ptr @type_sizes, i64 0, i64 %type
  %item = load i64, ptr %item.p, align 8
  %sizes = call ptr @pointer(ptr %arguments, i64 {a_dims})
  %given = call i64 @word(ptr %arguments, i64 {a_num_byte_strides})
  %has.strides = icmp ne i64 %given, 0
  %asked.strides = call ptr @pointer(ptr %arguments, i64 {a_byte_strides})
  %strides = select i1 %has.strides, ptr %asked.strides, ptr null
  %size = call i64 @dense_size(ptr %sizes, i64 %rank, ptr %strides, i64 %item)
  %is.array = icmp ne i64 %item, 0
  %is.dense = icmp ne i64 %size, -1
  %semantics.p = getelementptr i8, ptr %arguments, i64 {a_host_buffer_semantics}
  %semantics = load i32, ptr %semantics.p, align 4
  %may.copy = icmp ne i32 %semantics, {zero_copy}
  %small = icmp ult i64 %size, {shared}
  %copied = or i1 %may.copy, %small
  %fit.1 = and i1 %is.array, %is.dense
  %fit = and i1 %fit.1, %copied
  br i1 %fit, label %take, label %ask
take:
  %record = call ptr @take_record()
  %none = icmp eq ptr %record, null
  br i1 %none, label %ask, label %allocate
allocate:
  %address = call i64 @hloom_pjrt_allocate(i64 %size)
  %full = icmp eq i64 %address, 0
  br i1 %full, label %give.back, label %fill
give.back:
  call void @hloom_pjrt_give_record(ptr %record)
  br label %ask
fill:
  %data = call ptr @pointer(ptr %arguments, i64 {a_data})
  %to = inttoptr i64 %address to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %data, i64 %size, i1 false)
  %asked.memory = call ptr @pointer(ptr %arguments, i64 {a_memory})
  %by.device = icmp eq ptr %asked.memory, null
  br i1 %by.device, label %default, label %placed
default:
  %asked.device = call ptr @pointer(ptr %arguments, i64 {a_device})
  %default.memory = call ptr @pointer(ptr %asked.device, i64 {d_memory})
  br label %placed
placed:
  %memory = phi ptr [ %asked.memory, %fill ], [ %default.memory, %default ]
  %devices = call ptr @pointer(ptr %memory, i64 {m_devices})
  %device = load ptr, ptr %devices, align 8
  %own.sizes = getelementptr i8, ptr %record, i64 {sizes}
  %sizes.bytes = mul i64 %rank, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %own.sizes, ptr %sizes, i64 %sizes.bytes, i1 false)
  %ready = load ptr, ptr @hloom_pjrt_ready_event, align 8
  call void @put(ptr %record, i64 8, ptr null)
  call void @put_number(ptr %record, i64 {b_type}, i64 %type)
  call void @put(ptr %record, i64 {b_dims}, ptr %own.sizes)
  call void @put_number(ptr %record, i64 {b_num_dims}, i64 %rank)
  call void @put_number(ptr %record, i64 {b_num_dynamic_dims}, i64 0)
  call void @put_number(ptr %record, i64 {b_on_device_size_in_bytes}, i64 %size)
  call void @put(ptr %record, i64 {b_device}, ptr %device)
  call void @put(ptr %record, i64 {b_memory}, ptr %memory)
  call void @put_number(ptr %record, i64 {b_is_deleted}, i64 0)
  call void @put_number(ptr %record, i64 {b_is_on_cpu}, i64 1)
  %unused = sub i64 {most_sizes}, %rank
  %order = getelementptr i64, ptr @minor_to_major, i64 %unused
  call void @put(ptr %record, i64 {b_minor_to_major}, ptr %order)
  call void @put_number(ptr %record, i64 {b_zero}, i64 0)
  %layout.p = getelementptr ptr, ptr @hloom_pjrt_layouts, i64 %rank
  %row.major = load ptr, ptr %layout.p, align 8
  call void @put(ptr %record, i64 {b_layout}, ptr %row.major)
  call void @put(ptr %record, i64 {b_event}, ptr %ready)
  call void @put_number(ptr %record, i64 {b_buffer_pointer}, i64 %address)
  call void @put_number(ptr %record, i64 {b_references}, i64 0)
  call void @put_number(ptr %record, i64 {b_owned}, i64 %address)
  call void @hloom_pjrt_count_bytes(ptr %record, i1 true)
  call void @put(ptr %arguments, i64 {a_buffer}, ptr %record)
  call void @put(ptr %arguments, i64 {a_done_with_host_buffer}, ptr %ready)
  ret ptr null
ask:
  %error = call ptr @ask(ptr {from_host}, ptr %arguments)
  ret ptr %error
}}

define ptr @PJRT_Buffer_IncreaseExternalReferenceCount(ptr %arguments) {{
entry:
  %record = call ptr @pointer(ptr %arguments, i64 16)
  %deleted = call i64 @word(ptr %record, i64 {b_is_deleted})
  %alive = icmp eq i64 %deleted, 0
  br i1 %alive, label %count, label %ask
count:
  %place = getelementptr i8, ptr %record, i64 {b_references}
  %was = atomicrmw add ptr %place, i64 1 monotonic
  ret ptr null
ask:
  %error = call ptr @ask(ptr {increase}, ptr %arguments)
  ret ptr %error
}}

define ptr @PJRT_Buffer_DecreaseExternalReferenceCount(ptr %arguments) {{
  %record = call ptr @pointer(ptr %arguments, i64 16)
  %place = getelementptr i8, ptr %record, i64 {b_references}
  %was = atomicrmw sub ptr %place, i64 1 monotonic
  ret ptr null
}}
"""
