/*
 * The stand-in for the library of NVIDIA's driver (libcuda.so.1): as much of the CUDA driver API as the probe calls,
 * over the host's memory. The text of /etc/fake-cuda selects a fault: `STEP ERROR` (such as `init 802`), `corrupt`,
 * `hang STEP` or `crash STEP`; no such file: no fault.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char word[32], argument[32];

static int does(const char *step) {
    static int isRead;
    if (!isRead) {
        FILE *file = fopen("/etc/fake-cuda", "r");
        if (file != NULL && fscanf(file, "%31s %31s", word, argument) < 1) word[0] = '\0';
        if (file != NULL) fclose(file);
        isRead = 1;
    }
    if (strcmp(word, "hang") == 0 && strcmp(argument, step) == 0) for (;;) pause();
    if (strcmp(word, "crash") == 0 && strcmp(argument, step) == 0) abort();
    return strcmp(word, step) == 0 ? atoi(argument) : 0;
}

int cuGetErrorName(int code, const char **name) {
    *name = code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
int cuInit(unsigned int flags) { return flags != 0 ? 1 : does("init"); }
int cuDeviceGetCount(int *count) { return *count = 1, does("device"); }
int cuDeviceGet(int *device, int index) { return *device = index, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &word[device], does("context"); }
int cuDevicePrimaryCtxRelease_v2(int device) { return device; }
int cuCtxSetCurrent(void *context) { return context == NULL; }
int cuCtxSynchronize(void) { return does("synchronize"); }
int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
    int error = does("allocate");
    *at = error == 0 ? (uint64_t)(uintptr_t)malloc(bytes) : 0;
    return error;
}
int cuMemFree_v2(uint64_t at) { return free((void *)(uintptr_t)at), 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    memcpy((void *)(uintptr_t)to, from, bytes);
    does("copy");
    if (strcmp(word, "corrupt") == 0) ((unsigned char *)(uintptr_t)to)[bytes - 3] ^= 16;
    return does("copy");
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { return memcpy(to, (void *)(uintptr_t)from, bytes), 0; }
int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
    return memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes), 0;
}
int cuMemsetD32_v2(uint64_t at, unsigned int value, size_t count) {
    for (size_t index = 0; index < count; index += 1) ((uint32_t *)(uintptr_t)at)[index] = value;
    return does("fill");
}
