/* A PJRT client: client LIBRARY PROGRAM [threads]. Compiles StableHLO f32[4] -> f32[4], and prints the result for 1 2 3 4. */
#include <unistd.h>
#include "client.h"

static PJRT_LoadedExecutable *executable;

/* Runs the program on a buffer, which is destroyed, and checks its results. */
static void execute(PJRT_Buffer *argument, const float *data, float *result) {
  to_host(start(executable, argument), result);
  for (int k = 0; k < 4; k++) if (result[k] != data[k] * data[k] + 1) exit(4);
}

static void *run(void *printed) {
  float data[4] = {1, 2, 3, 4}, result[4];
  execute(to_device(data), data, result);
  if (printed != NULL) printf("%g %g %g %g\n", result[0], result[1], result[2], result[3]);
  return NULL;
}

static PJRT_Event *ready_event(PJRT_Buffer *buffer) {
  ARGUMENTS(Buffer_ReadyEvent);
  arguments.buffer = buffer;
  CALL(Buffer_ReadyEvent, arguments);
  return arguments.event;
}

static int is_ready(PJRT_Event *event) {
  ARGUMENTS(Event_IsReady);
  arguments.event = event;
  CALL(Event_IsReady, arguments);
  return arguments.is_ready;
}

static PJRT_AsyncHostToDeviceTransferManager *manager;

static void send(const void *data, size_t offset, size_t size, int is_last) {
  ARGUMENTS(AsyncHostToDeviceTransferManager_TransferData);
  arguments.transfer_manager = manager; arguments.data = (void *)data; arguments.offset = (void *)offset;
  arguments.transfer_size = size; arguments.is_last_transfer = is_last;
  CALL(AsyncHostToDeviceTransferManager_TransferData, arguments);
  await(arguments.done_with_h2d_transfer);
}

static void *send_rest(void *data) {
  usleep(100000);
  send((const char *)data + 8, 8, 8, 1);
  return NULL;
}

/* A buffer that is filled in two pieces, while a program waits for it; a second one that nobody retrieves. */
static void transfer_in_pieces(PJRT_Memory *memory) {
  static int64_t dims[1] = {4};
  static float data[4] = {5, 6, 7, 8};
  PJRT_ShapeSpec spec = {.struct_size = sizeof spec, .dims = (void *)dims, .num_dims = 1, .element_type = 11};
  PJRT_ShapeSpec specs[2] = {spec, spec};
  {
    ARGUMENTS(Client_CreateBuffersForAsyncHostToDevice);
    arguments.client = client; arguments.shape_specs = specs; arguments.num_shape_specs = 2; arguments.memory = memory;
    CALL(Client_CreateBuffersForAsyncHostToDevice, arguments);
    manager = arguments.transfer_manager;
  }
  PJRT_Buffer *buffer;
  {
    ARGUMENTS(AsyncHostToDeviceTransferManager_RetrieveBuffer);
    arguments.transfer_manager = manager;
    CALL(AsyncHostToDeviceTransferManager_RetrieveBuffer, arguments);
    buffer = arguments.buffer_out;
  }
  PJRT_Event *event = ready_event(buffer);
  send(data, 0, 8, 0);
  if (is_ready(event)) exit(6);
  pthread_t thread;
  float result[4];
  pthread_create(&thread, NULL, send_rest, data);
  execute(buffer, data, result);
  pthread_join(thread, NULL);
  if (!is_ready(event)) exit(6);
  await(event);
  {
    ARGUMENTS(AsyncHostToDeviceTransferManager_Destroy);
    arguments.transfer_manager = manager;
    CALL(AsyncHostToDeviceTransferManager_Destroy, arguments);
  }
}

/* Uses of a buffer with an error, and its ready event, fail with the error's code. */
static void error_buffer(PJRT_Memory *memory) {
  static int64_t dims[1] = {4};
  float result[4];
  PJRT_Buffer *buffer;
  {
    ARGUMENTS(Client_CreateErrorBuffer);
    arguments.client = client; arguments.error_code = 5; arguments.error_message = "lost"; arguments.error_message_size = 4;
    arguments.shape_dims = (void *)dims; arguments.shape_num_dims = 1; arguments.shape_element_type = 11;
    arguments.memory = memory;
    CALL(Client_CreateErrorBuffer, arguments);
    buffer = arguments.buffer;
  }
  PJRT_Event *event = ready_event(buffer);
  { ARGUMENTS(Event_Await); arguments.event = event; if (code_of(api->PJRT_Event_Await(&arguments)) != 5) exit(7); }
  { ARGUMENTS(Event_Error); arguments.event = event; if (code_of(api->PJRT_Event_Error(&arguments)) != 5) exit(7); }
  { ARGUMENTS(Event_Destroy); arguments.event = event; CALL(Event_Destroy, arguments); }
  {
    ARGUMENTS(Buffer_ToHostBuffer);
    arguments.src = buffer; arguments.dst = result; arguments.dst_size = sizeof result;
    if (code_of(api->PJRT_Buffer_ToHostBuffer(&arguments)) != 5) exit(7);
  }
  destroy(buffer);
}

static void uninitialised_buffer(void) {
  static int64_t dims[2] = {3, 5};
  ARGUMENTS(Client_CreateUninitializedBuffer);
  arguments.client = client; arguments.shape_dims = (void *)dims; arguments.shape_num_dims = 2;
  arguments.shape_element_type = 11; arguments.device = device;
  CALL(Client_CreateUninitializedBuffer, arguments);
  PJRT_Buffer_OnDeviceSizeInBytes_Args size = {.struct_size = sizeof size, .buffer = arguments.buffer};
  CALL(Buffer_OnDeviceSizeInBytes, size);
  if ((size_t)size.on_device_size_in_bytes != 60) exit(8);
  destroy(arguments.buffer);
}

static void other_buffers(void) {
  static char page[4096];
  PJRT_Device_DefaultMemory_Args memory = {.struct_size = sizeof memory, .device = device};
  CALL(Device_DefaultMemory, memory);
  transfer_in_pieces(memory.memory);
  error_buffer(memory.memory);
  uninitialised_buffer();
  { ARGUMENTS(Client_DmaMap); arguments.client = client; arguments.data = page; arguments.size = 4096; CALL(Client_DmaMap, arguments); }
  { ARGUMENTS(Client_DmaUnmap); arguments.client = client; arguments.data = page; CALL(Client_DmaUnmap, arguments); }
}

/* Compiles for a topology, without a client. */
static void compile_ahead(PJRT_Program *program) {
  PJRT_TopologyDescription_Create_Args topology = {.struct_size = sizeof topology};
  CALL(TopologyDescription_Create, topology);
  ARGUMENTS(Compile);
  arguments.topology = topology.topology; arguments.program = program; arguments.compile_options = "";
  CALL(Compile, arguments);
  PJRT_Executable_NumOutputs_Args outputs = {.struct_size = sizeof outputs, .executable = arguments.executable};
  CALL(Executable_NumOutputs, outputs);
  if ((size_t)outputs.num_outputs != 1) exit(9);
  { PJRT_Executable_Destroy_Args d = {.struct_size = sizeof d, .executable = arguments.executable}; CALL(Executable_Destroy, d); }
  { PJRT_TopologyDescription_Destroy_Args d = {.struct_size = sizeof d, .topology = topology.topology}; CALL(TopologyDescription_Destroy, d); }
}

int main(int count, char **words) {
  load(words[1]);
  PJRT_Program program = program_in(words[2]);
  executable = compiled(program);
  compile_ahead(&program);
  run("");
  other_buffers();
  int threads = count > 3 ? atoi(words[3]) : 0;
  pthread_t ids[64];
  for (int k = 0; k < threads; k++) pthread_create(&ids[k], NULL, run, NULL);
  for (int k = 0; k < threads; k++) pthread_join(ids[k], NULL);
  destroy_executable(executable);
  destroy_client();
  return 0;
}
