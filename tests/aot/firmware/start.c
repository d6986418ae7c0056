/* The start of a program on a Cortex-M without an operating system, and files of the host by semihosting. */
#include <stdint.h>

extern uint32_t stack_end;
int main(void);

static int call_host(int operation, const void *arguments) {
  register int r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = arguments;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

/* Reads (mode 1) or writes (mode 5) a file of the host; returns the number of bytes that were not. */
int host_file(const char *name, int mode, void *memory, uint32_t bytes) {
  uint32_t length = 0;
  while (name[length]) length++;
  const uint32_t opened[] = {(uint32_t)name, (uint32_t)mode, length};
  const int file = call_host(0x01, opened);
  const uint32_t moved[] = {(uint32_t)file, (uint32_t)memory, bytes};
  const int left = call_host(mode == 1 ? 0x06 : 0x05, moved);
  call_host(0x02, &file);
  return left;
}

void start(void) {
  *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* CPACR: the floating-point unit */
  const uint32_t status[] = {0x20026, (uint32_t)main()}; /* ADP_Stopped_ApplicationExit */
  call_host(0x20, status);
}

void fault(void) {
  const uint32_t status[] = {0x20026, 99};
  call_host(0x20, status);
}

__attribute__((section(".vectors"), used)) const void *const vectors[16] = {
  &stack_end, start, fault, fault, fault, fault, fault,
};
