/* The C API of ejk: one generic call by kernel name, with named tensors as DLPack lays them out and attributes as JSON.
 * Every function returns an ejk_status; what went wrong is in ejk_last_error() of the same thread. Nothing is printed, nothing aborts.
 * Kernel, tensor and attribute names, shapes and meanings: docs of each kernel (specs/<kernel>.json). Thread-safe. */
#ifndef EJK_H
#define EJK_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EJK_PUBLIC __attribute__((visibility("default")))

typedef enum {
  EJK_OK = 0,
  EJK_BAD_INPUT = 2,     /* tensors, attributes, names or files are wrong */
  EJK_UNSUPPORTED = 3,   /* legal, but no variant takes it */
  EJK_MISSING_IMAGE = 4, /* no binary and none could be built */
  EJK_COMPILE_FAILED = 5,
  EJK_IO = 6,
  EJK_DEVICE = 7,
  EJK_INTERNAL = 8
} ejk_status;

/* Bit for bit a DLTensor of DLPack 0.6 to 1.x: pass a DLTensor* as an ejk_tensor*. */
typedef struct {
  void* data;
  struct {
    int32_t type; /* 1 host, 2 CUDA, 10 ROCm */
    int32_t index;
  } device;
  int32_t rank;
  struct {
    uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 10 float8_e4m3fn */
    uint8_t bits;
    uint16_t lanes; /* must be 1 */
  } dtype;
  const int64_t* shape;
  const int64_t* strides; /* elements; NULL: contiguous, row-major */
  uint64_t byte_offset;
} ejk_tensor;

typedef struct {
  const char* name;
  const ejk_tensor* tensor;
} ejk_argument;

/* Runs `kernel` on named tensors (inputs and outputs; required outputs must be given). An output that is an input's memory, updated, need
 * not be given; if it is, under a name of its own, it must be that same memory.
 * attributes: a JSON object, or NULL for all defaults: "{\"causal\": true}".
 * config:     a JSON object that overrides the choice of config, or NULL: "{\"variant\": \"tiled\", \"block_m\": 64}".
 * stream:     the caller's stream on GPUs; ignored on the CPU. Nothing is written before an error. */
EJK_PUBLIC ejk_status ejk_call(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* config,
                               void* stream);

/* Shape and type of output `output` for these inputs. shape has room for 8 entries. */
EJK_PUBLIC ejk_status ejk_output(const char* kernel, const ejk_argument* inputs, size_t count, const char* attributes, const char* output,
                                 int32_t* rank, int64_t* shape, uint8_t* dtype_code, uint8_t* dtype_bits);

/* How the call would be carried out, as JSON text: variants and why each was refused, config tiers, image, geometry. Free with ejk_free. */
EJK_PUBLIC ejk_status ejk_explain(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* config,
                                  char** json);

/* The label of a call: a name for a profile or a compiled program (ejk/label.hpp). stamp: "hash" or "json". Tensors may be without data.
 * Free with ejk_free. */
EJK_PUBLIC ejk_status ejk_label(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* stamp,
                                char** label);

/* The labels in the HLO or StableHLO text of a compiled program, as a JSON list. Free with ejk_free. */
EJK_PUBLIC ejk_status ejk_labels_in_hlo(const char* text, size_t length, char** json);

/* Records a call that is not made by ejk_call, in the file of EJKERNEL_OPS_RECORD, if there is one. Tensors may be without data. */
EJK_PUBLIC ejk_status ejk_record(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes);

/* ---- calls made again and again ---- */

/* A call with its names, shapes, types and attributes read once. Any number of threads may run it at the same time. */
typedef struct ejk_prepared ejk_prepared;

typedef struct {
  int32_t kind; /* 0 absent: its default; 1 boolean; 2 integer; 3 floating */
  union {
    int32_t boolean;
    int64_t integer;
    double floating;
  };
} ejk_value;

/* As ejk_call, but nothing is run: what is wrong with shapes and types is told by the first ejk_run. The tensors' data is not looked at.
 * Free with ejk_release. */
EJK_PUBLIC ejk_status ejk_prepare(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* config,
                                  ejk_prepared** prepared);

/* Runs it on other data: data[i] is the first element of tensors[i] as given to ejk_prepare (what was absent there is passed over).
 * varying: the attributes that differ from call to call ("varies" in ejk_describe), in that order, or NULL: as they were prepared.
 * Scopes of this thread, and whatever else chooses the config, count as they are now. */
EJK_PUBLIC ejk_status ejk_run(const ejk_prepared* prepared, void* const* data, const ejk_value* varying, void* stream);
EJK_PUBLIC void ejk_release(ejk_prepared* prepared);

/* As ejk_run, with the caller's scratch on the tensors' device: at least what ejk_choose says, aligned to 256 bytes. NULL: ejk's own. */
EJK_PUBLIC ejk_status ejk_run_in(const ejk_prepared* prepared, void* const* data, const ejk_value* varying, void* stream, void* workspace,
                                 int64_t workspace_bytes);

/* A pool of threads of the caller's. */
typedef struct {
  int32_t threads; /* that may work on one call at a time, the calling one included; at least 1 */
  /* 0: task(data) will be called once, by any thread and at any time: also before schedule returns, also after ejk_run_on has. */
  int32_t (*schedule)(void* context, void (*task)(void* data), void* data);
  void* context; /* not used after ejk_run_on has returned */
} ejk_executor;

/* As ejk_run_in; work on the CPU is done by the calling thread and by tasks of that executor (EJKERNEL_EXECUTOR=own: by ejk's own threads
 * all the same). The caller may be a thread of the same pool: it waits for no task that has not begun. NULL: as ejk_run_in. */
EJK_PUBLIC ejk_status ejk_run_on(const ejk_executor* executor, const ejk_prepared* prepared, void* const* data, const ejk_value* varying,
                                 void* stream, void* workspace, int64_t workspace_bytes);

/* All that the first ejk_run on such data does before it launches: validates, chooses, compiles, loads. Data on a device is not read. */
EJK_PUBLIC ejk_status ejk_make_ready(const ejk_prepared* prepared, void* const* data, const ejk_value* varying, void* stream);

/* ---- for bindings whose callers give objects of a language: which calls were seen before ---- */

/* What the language's runtime says of its objects; in Python PyTuple_GetItem, PyObject_Type, Py_DecRef, and dltensor_from_py_object_no_sync
 * of the arrays' DLPack exchange API. They are called by ejk_seen_find and ejk_seen_add alone, on the caller's thread. */
typedef struct {
  void* (*item)(void* list, ptrdiff_t index);
  void* (*type)(void* object); /* to be given back by release */
  void (*release)(void* object);
  int (*tensor)(void* object, ejk_tensor* tensor); /* 0: read; shape and strides live as long as the object */
  const void* absent;                              /* an item that is no argument */
  const void* types[2];                            /* objects of other types are not read */
} ejk_objects;

/* Calls of one kernel with the same attributes: sets of shapes, strides, types and devices, numbered 0, 1, 2, ... Any number of threads may
 * use it at the same time. inputs, outputs: how many items their lists have. Free with ejk_seen_release. */
typedef struct ejk_seen ejk_seen;
EJK_PUBLIC ejk_status ejk_seen_new(const ejk_objects* objects, size_t inputs, size_t outputs, ejk_seen** seen);
EJK_PUBLIC void ejk_seen_release(ejk_seen* seen);

#define EJK_NOT_SEEN (-1)
#define EJK_NOT_READ (-2) /* an item is no tensor of these types; the language's own error may be set */

/* The number of a call of these two lists (outputs may be NULL: none is given), or one of the above. data gets the first element of each
 * item that is not absent, inputs first; it has room for all. */
EJK_PUBLIC int64_t ejk_seen_find(ejk_seen* seen, void* inputs, void* outputs, void** data);

/* The number from now on: a new one, or what another thread has added; or EJK_NOT_READ, or EJK_NOT_SEEN for want of memory. */
EJK_PUBLIC int64_t ejk_seen_add(ejk_seen* seen, void* inputs, void* outputs);

/* ---- calls whose data is not there yet: for compilers that trace a program before it runs (ejk/traced.hpp) ---- */

/* What a call means, as JSON text: {"form", "dims", "batch", "outputs"}. Outputs need not be given. Free with ejk_free. */
EJK_PUBLIC ejk_status ejk_bind(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, char** json);

/* A number that is another wherever this thread's overlays and policies, or what was measured, may choose another config: for those who
 * keep compiled calls. */
EJK_PUBLIC uint64_t ejk_scopes(void);

/* The config that a call gets on its tensors' device, as JSON text: {"config", "image", "workspace_bytes"}; a binary of the image
 * is made now, or, with EJKERNEL_JIT=background, begun on another thread: the call waits for it. Required outputs must be given. Free with
 * ejk_free. */
EJK_PUBLIC ejk_status ejk_choose(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* config,
                                 char** json);

/* ---- images that are compiled while others serve or are compiled (ejk/library.hpp) ---- */

/* What becomes of calls whose image no store has: "off", "on" or "background"; of the process, from its next calls on. EJKERNEL_JIT says
 * what holds at first. */
EJK_PUBLIC ejk_status ejk_set_jit(const char* jit);

/* Waits until nothing is compiled on other threads, so many milliseconds at most. 0: something still is. */
EJK_PUBLIC int32_t ejk_wait_for_images(int64_t milliseconds);

/* The prepared call will be differentiated with respect to these inputs ("q,k,v"): when its image is made, those of its gradient are built
 * at the same time, on other threads. To be said before the call is first run. */
EJK_PUBLIC ejk_status ejk_expect_gradient(ejk_prepared* prepared, const char* inputs);

/* The same of a call without data: the images of its gradient are begun now. Outputs that the gradient reads must be given. */
EJK_PUBLIC ejk_status ejk_build_gradient(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes,
                                         const char* inputs);

/* ---- what chooses the config, on this thread ---- */

/* From here to the matching pop this config holds for calls of `kernel`, or of every kernel ("" or NULL), where it is valid. */
EJK_PUBLIC ejk_status ejk_push_overlay(const char* kernel, const char* config);
EJK_PUBLIC ejk_status ejk_pop_overlay(void);

/* From here to the matching pop this policy holds: "{\"cache_miss_fallback\": \"autotune\"}". Members, all optional: allow_autotune
 * (true), allow_heuristics (true), cache_miss_fallback ("heuristics", "autotune", "error"), validate_backward (false); ejk/policy.hpp. */
EJK_PUBLIC ejk_status ejk_push_policy(const char* policy);
EJK_PUBLIC ejk_status ejk_pop_policy(void);

/* For languages whose scopes belong to tasks, not to threads: what is open on this thread, to be put under whatever a thread opens by
 * itself. ejk_use_scopes(scopes) takes the place of the last one's on this thread, NULL of it means none; its ids are those of the scopes
 * that were kept, so that what was planned under them is found again. Free with ejk_release_scopes, also while it is used. */
typedef struct ejk_kept_scopes ejk_kept_scopes;
EJK_PUBLIC ejk_status ejk_keep_scopes(ejk_kept_scopes** scopes);
EJK_PUBLIC ejk_status ejk_use_scopes(const ejk_kept_scopes* scopes);
EJK_PUBLIC void ejk_release_scopes(ejk_kept_scopes* scopes);

/* Measures the configs of a call and keeps the winner: in this process, and in the user's records where they can be written (otherwise
 * "not_kept" in the record says why). The tensors' data is not touched. options: a JSON object or NULL; budget_seconds (60),
 * step_seconds (10), jobs (0), seed (1), worker (""), cost_model (true); ejk/autotune.hpp. record: the measurement, as JSON text; free
 * with ejk_free. */
EJK_PUBLIC ejk_status ejk_tune(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* options,
                               char** record);

/* ---- what there is ---- */

/* The kernels' names, as a JSON list. Free with ejk_free. */
EJK_PUBLIC ejk_status ejk_kernels(char** json);

/* A kernel's contract as JSON text: doc, dims, types, forms, tensors and attributes in the order of the spec, requirements, gradient,
 * batch. Reads no device. Free with ejk_free. */
EJK_PUBLIC ejk_status ejk_describe(const char* kernel, char** json);

/* The calls that make up the gradient of a call, as JSON text: {"calls": [{"kernel", "tensors": {its name: a tensor of the call, or a
 * gradient such as "dx", or a temporary that calls before it make}, "outputs": [its names], "shapes": {a temporary it makes: [type,
 * shape]}, "attributes"}], "equal": {"dx": the tensor that it is}}. A gradient that several calls make is the sum of what they make.
 * Tensors may be without data. Free with ejk_free. */
EJK_PUBLIC ejk_status ejk_gradient(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, char** json);

/* Plans, compiles, loads and fallbacks since the start, as a JSON object. Free with ejk_free. */
EJK_PUBLIC ejk_status ejk_counters(char** json);

/* The kernels, archs, backends and stores of this process, as JSON text. Free with ejk_free. */
EJK_PUBLIC ejk_status ejk_info(char** json);
EJK_PUBLIC void ejk_free(char* text);

/* Puts a store (a folder with specs and templates) in front of those found by default. A kernel, an arch and a template are taken from the
 * first that has them: a store of your own kernels needs nothing else. Call it before anything else. */
EJK_PUBLIC ejk_status ejk_add_store(const char* path);

/* Another CUDA toolkit: NVRTC is looked for in its lib64 and lib after $CUDA_HOME and the loader's path. Call it before anything else. */
EJK_PUBLIC ejk_status ejk_add_toolkit(const char* path);

/* Threads for CPU work, the caller included; 0: as many as the process may use. */
EJK_PUBLIC ejk_status ejk_set_threads(int32_t threads);

EJK_PUBLIC const char* ejk_last_error(void); /* of this thread; "" after success; valid until its next call */
EJK_PUBLIC const char* ejk_version(void);    /* "0.1.0" */

#ifdef __cplusplus
}
#endif
#endif
