/*
 * Proves that a CUDA program runs on the one GPU of its container: takes a context, copies to the device, fills and
 * copies there, copies back, compares. Runs in the image of pause containers, which carries it and its C library.
 * Compiles without anything of NVIDIA's: the driver's library is opened by name, and its functions keep their names and
 * forms (CUDA driver API, docs.nvidia.com).
 *
 * Each step is a line on stderr, so that a hanging run shows its step. The last line on stdout is the result as JSON:
 *   {"step":"init","code":802,"name":"CUDA_ERROR_SYSTEM_NOT_READY","text":"","ms":12}
 * Exit codes: 0 the device works; 1 the driver returned an error; 2 the data came back wrong; 3 the driver's library
 * cannot be used.
 * No kernel of ours is compiled on the device: that needs another library of the driver, and its failure would say
 * nothing about the device. The driver fills memory by its own kernel.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORKS = 0, CUDA_ERROR = 1, WRONG_DATA = 2, NO_LIBRARY = 3 };

/* A run whose agent is gone ends by itself. */
#define DEADLINE_SECONDS 180
#define BYTES (4u << 20)
#define FILL 0xa5c3f00du

/* Folders in which NVIDIA's toolkit and CDI put the library: without a linker cache, its name alone finds nothing. */
static const char *const DIRECTORIES[] = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64",
    "/usr/local/nvidia/lib64",   "/run/opengl-driver/lib",
};

typedef int (*init_fn)(unsigned int);
typedef int (*count_fn)(int *);
typedef int (*get_fn)(int *, int);
typedef int (*retain_fn)(void **, int);
typedef int (*current_fn)(void *);
typedef int (*release_fn)(int);
typedef int (*alloc_fn)(uint64_t *, size_t);
typedef int (*free_fn)(uint64_t);
typedef int (*in_fn)(uint64_t, const void *, size_t);
typedef int (*out_fn)(void *, uint64_t, size_t);
typedef int (*across_fn)(uint64_t, uint64_t, size_t);
typedef int (*fill_fn)(uint64_t, unsigned int, size_t);
typedef int (*sync_fn)(void);
typedef int (*name_fn)(int, const char **);

static struct timespec started;
static const char *step = "load";
static name_fn name_of;

static void enter(const char *next) {
    step = next;
    fprintf(stderr, "%s\n", step);
}

static long elapsed_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - started.tv_sec) * 1000 + (now.tv_nsec - started.tv_nsec) / 1000000;
}

/* `_exit`: a broken driver may hang in what it does at the end of a process. */
static void end(int exit_code, int code, const char *text) {
    const char *name = "";
    if (code != 0 && (name_of == NULL || name_of(code, &name) != 0 || name == NULL)) name = "";
    printf("{\"step\":\"%s\",\"code\":%d,\"name\":\"%s\",\"text\":\"", step, code, name);
    for (const char *at = text; *at != '\0' && at < text + 300; at += 1)
        putchar(*at < ' ' || *at > '~' || *at == '"' || *at == '\\' ? ' ' : *at);
    printf("\",\"ms\":%ld}\n", elapsed_ms());
    fflush(stdout);
    _exit(exit_code);
}

static void need(int code) {
    if (code != 0) end(CUDA_ERROR, code, "");
}

static void *library(void) {
    void *found = dlopen("libcuda.so.1", RTLD_NOW);
    if (found != NULL) return found;
    static char why[300];
    snprintf(why, sizeof why, "%s", dlerror());
    for (size_t at = 0; at < sizeof DIRECTORIES / sizeof *DIRECTORIES; at += 1) {
        DIR *directory = opendir(DIRECTORIES[at]);
        if (directory == NULL) continue;
        for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
            char path[512];
            if (strncmp(entry->d_name, "libcuda.so.", 11) != 0) continue;
            snprintf(path, sizeof path, "%s/%s", DIRECTORIES[at], entry->d_name);
            found = dlopen(path, RTLD_NOW);
            if (found != NULL) {
                closedir(directory);
                return found;
            }
            snprintf(why, sizeof why, "%s", dlerror());
        }
        closedir(directory);
    }
    end(NO_LIBRARY, 0, why);
    return NULL;
}

static void *function(void *from, const char *name) {
    void *found = dlsym(from, name);
    if (found == NULL) end(NO_LIBRARY, 0, name);
    return found;
}

static void compare(const uint32_t *seen, const uint32_t *wanted, uint32_t fill) {
    for (size_t at = 0; at < BYTES / 4; at += 1) {
        uint32_t right = wanted == NULL ? fill : wanted[at];
        if (seen[at] == right) continue;
        char text[100];
        snprintf(text, sizeof text, "word %zu is %08x and was written as %08x", at, seen[at], right);
        end(WRONG_DATA, 0, text);
    }
}

int main(void) {
    clock_gettime(CLOCK_MONOTONIC, &started);
    alarm(DEADLINE_SECONDS);
    enter("load");
    void *cuda = library();
    name_of = (name_fn)dlsym(cuda, "cuGetErrorName");
    init_fn init = (init_fn)function(cuda, "cuInit");
    count_fn count = (count_fn)function(cuda, "cuDeviceGetCount");
    get_fn get = (get_fn)function(cuda, "cuDeviceGet");
    retain_fn retain = (retain_fn)function(cuda, "cuDevicePrimaryCtxRetain");
    release_fn release = (release_fn)dlsym(cuda, "cuDevicePrimaryCtxRelease_v2");
    if (release == NULL) release = (release_fn)function(cuda, "cuDevicePrimaryCtxRelease");
    current_fn set_current = (current_fn)function(cuda, "cuCtxSetCurrent");
    sync_fn synchronize = (sync_fn)function(cuda, "cuCtxSynchronize");
    alloc_fn allocate = (alloc_fn)function(cuda, "cuMemAlloc_v2");
    free_fn release_memory = (free_fn)function(cuda, "cuMemFree_v2");
    in_fn copy_in = (in_fn)function(cuda, "cuMemcpyHtoD_v2");
    out_fn copy_out = (out_fn)function(cuda, "cuMemcpyDtoH_v2");
    across_fn copy_across = (across_fn)function(cuda, "cuMemcpyDtoD_v2");
    fill_fn fill = (fill_fn)function(cuda, "cuMemsetD32_v2");

    enter("init");
    need(init(0));
    enter("device");
    int devices = 0, device = 0;
    need(count(&devices));
    if (devices < 1) end(CUDA_ERROR, 100, "");
    need(get(&device, 0));
    enter("context");
    void *context = NULL;
    need(retain(&context, device));
    need(set_current(context));

    enter("allocate");
    uint64_t first = 0, second = 0;
    need(allocate(&first, BYTES));
    need(allocate(&second, BYTES));
    uint32_t *wanted = malloc(BYTES), *seen = malloc(BYTES);
    if (wanted == NULL || seen == NULL) end(NO_LIBRARY, 0, "no memory on the host");
    uint32_t state = 2463534242u ^ (uint32_t)started.tv_nsec;
    if (state == 0) state = 1;
    for (size_t at = 0; at < BYTES / 4; at += 1) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        wanted[at] = state;
    }

    enter("fill");
    need(fill(second, FILL, BYTES / 4));
    need(synchronize());
    memset(seen, 0, BYTES);
    need(copy_out(seen, second, BYTES));
    compare(seen, NULL, FILL);

    enter("copy");
    need(copy_in(first, wanted, BYTES));
    need(copy_across(second, first, BYTES));
    need(synchronize());
    memset(seen, 0, BYTES);
    need(copy_out(seen, second, BYTES));
    compare(seen, wanted, 0);

    enter("free");
    need(release_memory(first));
    need(release_memory(second));
    need(release(device));
    enter("done");
    end(WORKS, 0, "");
}
