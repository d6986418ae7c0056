/* The PJRT plugin as a shared library: joins the Python of the process, or starts one, and asks hloom for the interface.

   The compiler defines LIBPYTHON, the path of Python's shared library, and SEARCH_PATH, folders of Python modules,
   separated by ':'. The environment variables HLOOM_LIBPYTHON and HLOOM_PYTHONPATH take precedence. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without Python, the interface has the functions of errors, and Plugin_Initialize, which fails. */

typedef struct { size_t size; const void *extension, *error; const char *message; size_t length; } MessageArguments;
typedef struct { size_t size; const void *extension, *error; int code; } CodeArguments;
typedef struct {
  size_t size;
  const void *extension;
  struct { size_t size; const void *extension; int major, minor; } version;
  void (*error_destroy)(const void *);
  void (*error_message)(MessageArguments *);
  const void *(*error_code)(CodeArguments *);
  const void *(*initialize)(const void *);
} FailedInterface;

enum { FAILED_PRECONDITION = 9 };
static char problem[2048];

static void error_destroy(const void *arguments) { (void)arguments; }
static void error_message(MessageArguments *arguments) {
  arguments->message = problem;
  arguments->length = strlen(problem);
}
static const void *error_code(CodeArguments *arguments) {
  arguments->code = FAILED_PRECONDITION;
  return NULL;
}
static const void *initialize(const void *arguments) {
  (void)arguments;
  return problem;
}

static FailedInterface failed = {
  sizeof failed, NULL, { sizeof failed.version, NULL, 0, 93 }, error_destroy, error_message, error_code, initialize,
};
static const void *interface = &failed;

/* Functions of Python's C interface. */

static struct {
  int (*is_initialized)(void);
  void (*start)(int);
  void *(*release_thread)(void);
  int (*ensure)(void);
  void (*release)(int);
  void *(*import)(const char *);
  void *(*call)(void *, const char *, const char *, ...);
  unsigned long long (*to_integer)(void *);
  void *(*error)(void);
  void (*print_error)(void);
  int (*run)(const char *);
  int (*has_lock)(void);
  void (*before_fork)(void);
  void (*after_fork_in_parent)(void);
  void (*after_fork_in_child)(void);
} python;

static const struct { const char *name; void *place; } SYMBOLS[] = {
  { "Py_IsInitialized", &python.is_initialized }, { "Py_InitializeEx", &python.start },
  { "PyEval_SaveThread", &python.release_thread }, { "PyGILState_Ensure", &python.ensure },
  { "PyGILState_Release", &python.release },      { "PyImport_ImportModule", &python.import },
  { "PyObject_CallMethod", &python.call },         { "PyLong_AsUnsignedLongLong", &python.to_integer },
  { "PyErr_Occurred", &python.error },             { "PyErr_Print", &python.print_error },
  { "PyRun_SimpleString", &python.run },           { "PyGILState_Check", &python.has_lock },
  { "PyOS_BeforeFork", &python.before_fork },      { "PyOS_AfterFork_Parent", &python.after_fork_in_parent },
  { "PyOS_AfterFork_Child", &python.after_fork_in_child },
};

static const char *setting(const char *variable, const char *otherwise) {
  const char *value = getenv(variable);
  return value != NULL && *value != '\0' ? value : otherwise;
}

/* Fills in `python`: from the process, or from Python's library. Returns whether that succeeded. */
static int find_python(void) {
  void *library = RTLD_DEFAULT;
  if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") == NULL) {
    const char *path = setting("HLOOM_LIBPYTHON", LIBPYTHON);
    library = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* global: extension modules need its symbols */
    if (library == NULL) {
      snprintf(problem, sizeof problem, "hloom needs Python: %s (HLOOM_LIBPYTHON names another libpython)", dlerror());
      return 0;
    }
  }
  for (size_t k = 0; k < sizeof SYMBOLS / sizeof *SYMBOLS; k++) {
    void *found = dlsym(library, SYMBOLS[k].name);
    if (found == NULL) {
      snprintf(problem, sizeof problem, "hloom needs Python, but this one has no %s", SYMBOLS[k].name);
      return 0;
    }
    memcpy(SYMBOLS[k].place, &found, sizeof found);
  }
  return 1;
}

/* A fork by the process is one by Python: no other thread is inside Python meanwhile, and its hooks run. They give the
   child pools and queues of its own, since it lacks the threads of its parent. */

static _Thread_local int is_pythons, before;

static void prepare_fork(void) {
  is_pythons = python.has_lock();
  before = python.ensure();
  if (!is_pythons) python.before_fork();
}

static void fork_in_parent(void) {
  if (!is_pythons) python.after_fork_in_parent();
  python.release(before);
}

static void fork_in_child(void) {
  if (!is_pythons) python.after_fork_in_child();
  python.release(before);
}

/* Starts Python without signal handlers, and adds the search path; leaves the interpreter's lock free. */
static void start_python(void) {
  setenv("HLOOM_PLUGIN_PATH", setting("HLOOM_PYTHONPATH", SEARCH_PATH), 1); /* Python reads the environment at its start */
  python.start(0);
  python.run("import os, sys\n"
             "sys.path += [p for p in os.environ.pop('HLOOM_PLUGIN_PATH').split(':') if p not in sys.path]\n");
  python.release_thread();
  pthread_atfork(prepare_fork, fork_in_parent, fork_in_child);
}

static void ask_hloom(void) {
  int state = python.ensure();
  void *module = python.import("hloom.pjrt");
  void *address = module == NULL ? NULL : python.call(module, "api_address", NULL);
  uintptr_t found = address == NULL ? 0 : (uintptr_t)python.to_integer(address);
  if (python.error() != NULL) {
    python.print_error();
    snprintf(problem, sizeof problem,
             "hloom does not start in Python: see standard error (HLOOM_PYTHONPATH names other folders of modules)");
  } else {
    interface = (const void *)found;
  }
  python.release(state);
}

static void start(void) {
  if (!find_python()) return;
  if (!python.is_initialized()) start_python();
  ask_hloom();
}

/* The entry point of PJRT plugins: returns a PJRT_Api, always the same. */
__attribute__((visibility("default"))) const void *GetPjrtApi(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start);
  return interface;
}
