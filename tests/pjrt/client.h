/* Parts of clients of the PJRT interface. `pjrt_c_api.h` is the public header, or the one that test_plugin.py makes of
   hloom's table. Errors end the process. */
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

#define CALL(name, arguments) check(api->PJRT_##name(&(arguments)), #name)
#define ARGUMENTS(name) PJRT_##name##_Args arguments = {.struct_size = sizeof arguments}

static inline void check(PJRT_Error *error, const char *name) {
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

/* Returns the code of an error, which is destroyed; 0 for none. */
static inline int code_of(PJRT_Error *error) {
  PJRT_Error_GetCode_Args c = {.struct_size = sizeof c, .error = error};
  if (error == NULL) return 0;
  api->PJRT_Error_GetCode(&c);
  PJRT_Error_Destroy_Args d = {.struct_size = sizeof d, .error = error};
  api->PJRT_Error_Destroy(&d);
  return c.code;
}

static inline void await(PJRT_Event *event) {
  { ARGUMENTS(Event_Await); arguments.event = event; CALL(Event_Await, arguments); }
  { ARGUMENTS(Event_Destroy); arguments.event = event; CALL(Event_Destroy, arguments); }
}

static inline PJRT_Buffer *to_device(const float *data) {
  static const int64_t dims[1] = {4};
  ARGUMENTS(Client_BufferFromHostBuffer);
  arguments.client = client; arguments.data = (void *)data; arguments.type = 11; /* f32 */
  arguments.dims = (void *)dims; arguments.num_dims = 1; arguments.device = device;
  CALL(Client_BufferFromHostBuffer, arguments);
  await(arguments.done_with_host_buffer);
  return arguments.buffer;
}

static inline void destroy(PJRT_Buffer *buffer) {
  ARGUMENTS(Buffer_Destroy);
  arguments.buffer = buffer;
  CALL(Buffer_Destroy, arguments);
}

/* Starts a program on a buffer, which is destroyed, and returns the result. */
static inline PJRT_Buffer *start(PJRT_LoadedExecutable *program, PJRT_Buffer *argument) {
  PJRT_Buffer *input[1] = {argument}, *output[1], *const *inputs[1] = {input}, **outputs[1] = {output};
  PJRT_ExecuteOptions options = {.struct_size = sizeof options};
  {
    ARGUMENTS(LoadedExecutable_Execute);
    arguments.executable = program; arguments.options = &options; arguments.argument_lists = (void *)inputs;
    arguments.num_devices = 1; arguments.num_args = 1; arguments.output_lists = (void *)outputs;
    CALL(LoadedExecutable_Execute, arguments);
  }
  destroy(argument);
  return output[0];
}

/* Copies a buffer f32[4] to the host, and destroys it. */
static inline void to_host(PJRT_Buffer *buffer, float *result) {
  ARGUMENTS(Buffer_ToHostBuffer);
  arguments.src = buffer; arguments.dst = result; arguments.dst_size = 4 * sizeof *result;
  CALL(Buffer_ToHostBuffer, arguments);
  await(arguments.event);
  destroy(buffer);
}

/* Loads a plugin, and makes a client. */
static inline void load(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) { fprintf(stderr, "%s\n", dlerror()); exit(2); }
  api = ((const PJRT_Api *(*)(void))dlsym(library, "GetPjrtApi"))();
  { ARGUMENTS(Plugin_Initialize); CALL(Plugin_Initialize, arguments); }
  { ARGUMENTS(Client_Create); CALL(Client_Create, arguments); client = arguments.client; }
  ARGUMENTS(Client_AddressableDevices);
  arguments.client = client;
  CALL(Client_AddressableDevices, arguments);
  device = ((PJRT_Device **)arguments.addressable_devices)[0];
}

/* Returns the content of a file as a program. */
static inline PJRT_Program program_in(const char *path) {
  static char format[] = "mlir";
  char *text = calloc(1 << 16, 1);
  FILE *file = fopen(path, "rb");
  size_t size = fread(text, 1, (1 << 16) - 1, file);
  fclose(file);
  return (PJRT_Program){.struct_size = sizeof(PJRT_Program), .code = text, .code_size = size, .format = format, .format_size = 4};
}

static inline PJRT_LoadedExecutable *compiled(PJRT_Program program) {
  ARGUMENTS(Client_Compile);
  arguments.client = client; arguments.program = &program; arguments.compile_options = "";
  CALL(Client_Compile, arguments);
  return arguments.executable;
}

static inline void destroy_executable(PJRT_LoadedExecutable *program) {
  ARGUMENTS(LoadedExecutable_Destroy);
  arguments.executable = program;
  CALL(LoadedExecutable_Destroy, arguments);
}

static inline void destroy_client(void) {
  ARGUMENTS(Client_Destroy);
  arguments.client = client;
  CALL(Client_Destroy, arguments);
}
