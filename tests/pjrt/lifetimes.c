/* A PJRT client in unusual lives of processes: lifetimes SCENARIO PROGRAM LIBRARY [COPY]. Prints "ok". */
#include <stdatomic.h>
#include "client.h"

static PJRT_Program program;
static PJRT_LoadedExecutable *executable;
static PJRT_Buffer *in_flight;
static float data[4] = {1, 2, 3, 4}, expected[4];

static void *prepare(void *words) {
  program = program_in(((char **)words)[2]);
  load(((char **)words)[3]);
  executable = compiled(program);
  to_host(start(executable, to_device(data)), expected);
  return NULL;
}

static void run(void) {
  float result[4];
  to_host(start(executable, to_device(data)), result);
  if (memcmp(result, expected, sizeof result)) exit(4);
}

/* Two copies of the plugin are one platform: what one client makes, another may use, also when that has ended. */
static void copies(char **words) {
  prepare(words);
  const PJRT_Api *first = api;
  load(words[4]);
  if (api != first) exit(5);
  run();
  destroy_client();
  load(words[3]);
  run();
  destroy_executable(executable);
  executable = compiled(program);
  run();
}

static atomic_int stops;

static void *compile_and_run(void *nothing) {
  (void)nothing;
  while (!stops) {
    PJRT_LoadedExecutable *own = compiled(program);
    float result[4];
    to_host(start(own, to_device(data)), result);
    destroy_executable(own);
  }
  return NULL;
}

static void run_in_child(void) {
  alarm(60);
  run();
  executable = compiled(program);
  run();
  _exit(0);
}

/* Children compile and run, though another thread of the parent was inside the plugin. */
static void forks(char **words) {
  pthread_t thread;
  prepare(words);
  pthread_create(&thread, NULL, compile_and_run, NULL);
  for (int k = 0; k < 8; k++) {
    int status, child = fork();
    if (child == 0) run_in_child();
    run();
    waitpid(child, &status, 0);
    if (status) { fprintf(stderr, "child %d: status %x\n", k, status); exit(6); }
  }
  stops = 1;
  pthread_join(thread, NULL);
}

/* The thread that started Python ends. */
static void thread(char **words) {
  pthread_t first;
  pthread_create(&first, NULL, prepare, words);
  pthread_join(first, NULL);
  run();
  destroy_executable(executable);
  executable = compiled(program);
  run();
}

static void close_library(char **words) {
  prepare(words);
  for (int k = 0; k < 2; k++) dlclose(dlopen(words[3], RTLD_NOW | RTLD_NOLOAD));
  run();
  load(words[3]);
  run();
}

static void destroy_at_exit(void) {
  float result[4];
  to_host(in_flight, result);
  if (memcmp(result, expected, sizeof result)) _exit(7);
  destroy_executable(executable);
  destroy_client();
  puts("ok");
}

static void *end_process(void *nothing) {
  (void)nothing;
  in_flight = start(executable, to_device(data));
  exit(0);
}

/* Another thread ends the process while a program runs; the client is destroyed last. */
static void exits(char **words) {
  pthread_t thread;
  atexit(destroy_at_exit);
  prepare(words);
  pthread_create(&thread, NULL, end_process, NULL);
  pthread_join(thread, NULL);
}

/* Python has ended: what needs it fails, and everything can be destroyed. */
static void after_python(void) {
  float result[4];
  PJRT_Buffer_ToHostBuffer_Args copy = {.struct_size = sizeof copy, .src = in_flight, .dst = result, .dst_size = sizeof result};
  PJRT_Client_Compile_Args compile = {.struct_size = sizeof compile, .client = client, .program = &program, .compile_options = ""};
  if (code_of(api->PJRT_Buffer_ToHostBuffer(&copy)) != 9 || code_of(api->PJRT_Client_Compile(&compile)) != 9) _exit(8);
  destroy(in_flight);
  destroy_executable(executable);
  destroy_client();
  puts("ok");
  fflush(stdout);
}

/* For a process that runs Python, which calls this. */
void prepare_for_end(char *path, char *library) {
  char *words[4] = {NULL, NULL, path, library};
  prepare(words);
  in_flight = start(executable, to_device(data));
  atexit(after_python);
}

int main(int count, char **words) {
  static const struct { const char *name; void (*run)(char **); } SCENARIOS[] = {
    { "copies", copies }, { "forks", forks }, { "thread", thread }, { "close", close_library }, { "exits", exits },
  };
  (void)count;
  for (size_t k = 0; k < sizeof SCENARIOS / sizeof *SCENARIOS; k++)
    if (strcmp(words[1], SCENARIOS[k].name) == 0) SCENARIOS[k].run(words);
  puts("ok");
  return 0;
}
