/* A CUDA driver without a GPU: memory is the host's, and a "cubin" is a text that says what its
 * kernel does. Each buffer is an argument; the first is written, the second is read. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int status;
static status broken = 0;
static int launches = 0, others = 0;
/* What its events tell: milliseconds of all launches so far; and whether memory was written since. */
static float now = 0;
static int flushed = 0;

static status ok(void) { return broken; }

status cuInit(unsigned flags) { return getenv("FAKE_CUDA_ABSENT") ? 100 : 0; }
status cuDeviceGet(int *device, int number) { *device = number; return 0; }
status cuDeviceGetName(char *name, int size, int device) { strncpy(name, "Fake GPU", size); return 0; }
status cuDriverGetVersion(int *version) { *version = 13000; return 0; }
status cuDeviceTotalMem_v2(size_t *size, int device) { *size = 1 << 30; return 0; }
status cuDeviceGetAttribute(int *value, int which, int device) {
    *value = which == 38 ? 1 << 20 : which == 75 ? 9 : which == 76 ? 0 : which == 1 ? 1024 : which == 97 ? 232448 : 4;
    return 0;
}
status cuDevicePrimaryCtxRetain(void **context, int device) { *context = &broken; return 0; }
status cuCtxSetCurrent(void *context) { return 0; }
status cuGetErrorName(status code, const char **name) {
    *name = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : code == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
          : code == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_INVALID_VALUE";
    return 0;
}
status cuGetErrorString(status code, const char **words) { *words = "the fake driver says no"; return 0; }
status cuModuleLoadDataEx(void **module, const char *cubin, unsigned n, int *options, void **values) {
    if (broken) return broken;
    if (!strncmp(cubin, "refuse-load", 11)) return 209;
    *module = strdup(cubin);
    return 0;
}
status cuModuleUnload(void *module) { free(module); return ok(); }
status cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return strcmp(name, "missing") ? ok() : 500;
}
status cuFuncGetAttribute(int *value, int which, void *function) { *value = 8; return ok(); }
status cuFuncSetAttribute(void *function, int which, int value) {
    return value > 232448 ? 1 : ok();
}
status cuMemAlloc_v2(uint64_t *address, size_t size) {
    if (broken) return broken;
    if (size > (1u << 28)) return 2;
    *address = (uint64_t)(uintptr_t)aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    return 0;
}
status cuMemFree_v2(uint64_t address) { free((void *)(uintptr_t)address); return ok(); }
status cuMemsetD8_v2(uint64_t to, unsigned char byte, size_t size) {
    memset((void *)(uintptr_t)to, byte, size);
    return ok();
}
status cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
    memcpy((void *)(uintptr_t)to, from, size);
    return ok();
}
status cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    memcpy(to, (void *)(uintptr_t)from, size);
    return ok();
}
status cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t size) {
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    return ok();
}
status cuMemsetD8Async(uint64_t to, unsigned char byte, size_t size, void *stream) {
    flushed = 1;
    return ok();
}
status cuDeviceGetPCIBusId(char *address, int size, int device) { strncpy(address, "0000:01:00.0", size); return 0; }
status cuEventCreate(float **event, unsigned flags) { *event = malloc(sizeof **event); return ok(); }
status cuEventRecord(float *event, void *stream) { *event = now; return ok(); }
status cuEventElapsedTime(float *ms, float *start, float *end) { *ms = *end - *start; return ok(); }
/* The management library, under a name of its own. */
status nvmlInit_v2(void) { return 0; }
status nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "580.1", size); return 0; }
status nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device) { return strcmp(address, "0000:01:00.0"); }
status nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz) { *mhz = 1980; return which != 1; }
status cuTensorMapEncodeTiled(void *map, int element, unsigned rank, void *address, const uint64_t *sizes,
                              const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                              int interleave, int swizzle, int promotion, int fill) {
    memset(map, 0, 128);
    memcpy(map, &address, 8);
    return 0;
}
status cuCtxSynchronize(void) { return broken; }

static status work(const char *text, void **arguments) {
    uint32_t *out = *(uint32_t **)arguments[0];
    if (!strncmp(text, "refuse-launch", 13)) return 701;
    if (!strncmp(text, "add ", 4)) {
        uint32_t *in = *(uint32_t **)arguments[1];
        for (int n = 0; n < 4; n++) out[n] = in[n] + atoi(text + 4);
    }
    if (!strncmp(text, "fault", 5)) broken = 700;
    /* Goes wrong only in a process that has launched something else before. */
    if (!strncmp(text, "after", 5) && others) broken = 700;
    if (!strncmp(text, "hang", 4)) for (;;) pause();
    if (!strncmp(text, "crash", 5)) raise(SIGSEGV);
    if (!strncmp(text, "beyond", 6)) out[128] = out[130] = 0;
    if (!strncmp(text, "arguments", 9)) {
        out[0] = *(uint32_t *)arguments[1];
        out[1] = *(uint64_t *)arguments[2] != 0;
        out[2] = (uint32_t)(*(uint64_t *)arguments[3] & 63);
    }
    if (!strncmp(text, "count", 5)) out[0] = launches;
    /* So many milliseconds, and one more where the caches hold what was left in them. */
    if (!strncmp(text, "\177ELF", 4)) now += 2;
    if (!strncmp(text, "takes ", 6)) now += atoi(text + 6) + !flushed;
    flushed = 0;
    /* In the end it faults: where it is timed, not where it is launched twice. */
    if (!strncmp(text, "third", 5) && launches > 2) broken = 700;
    launches++;
    others += strncmp(text, "after", 5) != 0;
    return 0;
}
status cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                      unsigned bz, unsigned shared, void *stream, void **arguments, void **extra) {
    return work(function, arguments);
}
struct config { unsigned grid[3], block[3], shared; void *stream; void *attributes; unsigned count; };
status cuLaunchKernelEx(const struct config *config, void *function, void **arguments, void **extra) {
    return config->count == 1 ? work(function, arguments) : 1;
}
