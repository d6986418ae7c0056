/* A PJRT client: client LIBRARY PROGRAM [threads]. Compiles StableHLO f32[4] -> f32[4], and prints the result for 1 2 3 4.
   `pjrt_c_api.h` is the public header, or the one that test_plugin.py makes of hloom's table. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
#include "pjrt_c_api.h"

static const PJRT_Api *api;
static PJRT_Client *client;
static PJRT_Device *device;
static PJRT_LoadedExecutable *executable;

#define CALL(name, arguments) check(api->PJRT_##name(&(arguments)), #name)
#define ARGUMENTS(name) PJRT_##name##_Args arguments = {.struct_size = sizeof arguments}

static void check(PJRT_Error *error, const char *name) {
  if (error == NULL) return;
  PJRT_Error_Message_Args m = {.struct_size = sizeof m, .error = error};
  api->PJRT_Error_Message(&m);
  PJRT_Error_GetCode_Args c = {.struct_size = sizeof c, .error = error};
  api->PJRT_Error_GetCode(&c);
  fprintf(stderr, "%s: code %d: %.*s\n", name, (int)c.code, (int)m.message_size, (const char *)m.message);
  PJRT_Error_Destroy_Args d = {.struct_size = sizeof d, .error = error};
  api->PJRT_Error_Destroy(&d);
  exit(3);
}

static void await(PJRT_Event *event) {
  { ARGUMENTS(Event_Await); arguments.event = event; CALL(Event_Await, arguments); }
  { ARGUMENTS(Event_Destroy); arguments.event = event; CALL(Event_Destroy, arguments); }
}

static PJRT_Buffer *to_device(const float *data) {
  static const int64_t dims[1] = {4};
  ARGUMENTS(Client_BufferFromHostBuffer);
  arguments.client = client; arguments.data = (void *)data; arguments.type = 11; /* f32 */
  arguments.dims = (void *)dims; arguments.num_dims = 1; arguments.device = device;
  CALL(Client_BufferFromHostBuffer, arguments);
  await(arguments.done_with_host_buffer);
  return arguments.buffer;
}

static void *run(void *printed) {
  float data[4] = {1, 2, 3, 4}, result[4];
  PJRT_Buffer *input[1] = {to_device(data)}, *output[1], *const *inputs[1] = {input}, **outputs[1] = {output};
  PJRT_ExecuteOptions options = {.struct_size = sizeof options};
  {
    ARGUMENTS(LoadedExecutable_Execute);
    arguments.executable = executable; arguments.options = &options; arguments.argument_lists = (void *)inputs;
    arguments.num_devices = 1; arguments.num_args = 1; arguments.output_lists = (void *)outputs;
    CALL(LoadedExecutable_Execute, arguments);
  }
  {
    ARGUMENTS(Buffer_ToHostBuffer);
    arguments.src = output[0]; arguments.dst = result; arguments.dst_size = sizeof result;
    CALL(Buffer_ToHostBuffer, arguments);
    await(arguments.event);
  }
  for (int k = 0; k < 2; k++) {
    ARGUMENTS(Buffer_Destroy);
    arguments.buffer = k ? output[0] : input[0];
    CALL(Buffer_Destroy, arguments);
  }
  for (int k = 0; k < 4; k++) if (result[k] != data[k] * data[k] + 1) exit(4);
  if (printed != NULL) printf("%g %g %g %g\n", result[0], result[1], result[2], result[3]);
  return NULL;
}

static void compile(char *text) {
  static char format[] = "mlir";
  PJRT_Program program = {.struct_size = sizeof program, .code = text, .code_size = strlen(text), .format = format,
                          .format_size = 4};
  ARGUMENTS(Client_Compile);
  arguments.client = client; arguments.program = &program; arguments.compile_options = ""; arguments.compile_options_size = 0;
  CALL(Client_Compile, arguments);
  executable = arguments.executable;
}

int main(int count, char **words) {
  const PJRT_Api *(*get)(void) = NULL;
  for (int k = 0; k < 2; k++) { /* loading it twice gives the same interface */
    void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) { fprintf(stderr, "%s\n", dlerror()); return 2; }
    get = (const PJRT_Api *(*)(void))dlsym(library, "GetPjrtApi");
    if (api != NULL && api != get()) return 5;
    api = get();
  }
  { ARGUMENTS(Plugin_Initialize); CALL(Plugin_Initialize, arguments); }
  { ARGUMENTS(Client_Create); CALL(Client_Create, arguments); client = arguments.client; }
  {
    ARGUMENTS(Client_AddressableDevices);
    arguments.client = client;
    CALL(Client_AddressableDevices, arguments);
    device = ((PJRT_Device **)arguments.addressable_devices)[0];
  }
  static char text[1 << 16];
  FILE *file = fopen(words[2], "rb");
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  compile(text);
  run("");
  int threads = count > 3 ? atoi(words[3]) : 0;
  pthread_t ids[64];
  for (int k = 0; k < threads; k++) pthread_create(&ids[k], NULL, run, NULL);
  for (int k = 0; k < threads; k++) pthread_join(ids[k], NULL);
  if (threads && fork() == 0) { run(NULL); _exit(0); }
  int status = 0;
  if (threads) wait(&status);
  { ARGUMENTS(LoadedExecutable_Destroy); arguments.executable = executable; CALL(LoadedExecutable_Destroy, arguments); }
  { ARGUMENTS(Client_Destroy); arguments.client = client; CALL(Client_Destroy, arguments); }
  return status != 0;
}
