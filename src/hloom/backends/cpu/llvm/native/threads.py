"""Functions of the C library's threads for native Python, on mutexes and condition variables inside structures.

A mutex or a condition variable takes at most 64 bytes on Linux and macOS, and the handle of a thread a pointer.
"""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.types import Address, i32, u32
from hloom.backends.cpu.llvm.native.vocabulary import external

pthread_create = external("pthread_create", i32, Address, Address, Address, Address)
pthread_join = external("pthread_join", i32, Address, Address)
pthread_mutex_init = external("pthread_mutex_init", i32, Address, Address)
pthread_mutex_lock = external("pthread_mutex_lock", i32, Address)
pthread_mutex_unlock = external("pthread_mutex_unlock", i32, Address)
pthread_cond_init = external("pthread_cond_init", i32, Address, Address)
pthread_cond_wait = external("pthread_cond_wait", i32, Address, Address)
pthread_cond_timedwait = external("pthread_cond_timedwait", i32, Address, Address, Address)
pthread_cond_signal = external("pthread_cond_signal", i32, Address)
pthread_cond_broadcast = external("pthread_cond_broadcast", i32, Address)
sched_yield = external("sched_yield", i32)
usleep = external("usleep", i32, u32)
clock_gettime = external("clock_gettime", i32, i32, Address)
