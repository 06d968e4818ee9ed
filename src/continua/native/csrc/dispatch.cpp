// The entry points: the build for this processor is chosen once.
#include "api.h"
#include <cstring>

#define CONTINUA_DECLARE(isa) \
  namespace isa {             \
  void run(int what, const void *op, int dtype, Parallel parallel); \
  }
CONTINUA_DECLARE(portable)
#if defined(__x86_64__)
CONTINUA_DECLARE(avx2)
CONTINUA_DECLARE(avx512)
#endif

static const char *chosen = nullptr;
static void (*kernels)(int, const void *, int, Parallel) = nullptr;
static Parallel pool = nullptr;

#define CONTINUA_API extern "C" __attribute__((visibility("default")))

// The best build that this processor can run, or the one named, if it can; returns its name.
CONTINUA_API const char *continua_choose(const char *wanted) {
  chosen = "portable", kernels = portable::run;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool narrow = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512bw");
  const bool any = !wanted || !*wanted;
  if (narrow && (any || !std::strcmp(wanted, "avx2"))) chosen = "avx2", kernels = avx2::run;
  if (wide && (any || !std::strcmp(wanted, "avx512"))) chosen = "avx512", kernels = avx512::run;
#endif
  return chosen;
}

// Which sources this was made of.
CONTINUA_API const char *continua_sources() { return CONTINUA_SOURCES; }

CONTINUA_API void continua_use_pool(Parallel parallel) { pool = parallel; }

static void run(int what, const void *op, int dtype) {
  if (!kernels) continua_choose(nullptr);
  kernels(what, op, dtype, pool);
}

CONTINUA_API void continua_norm_act_conv(const NormActConv *op) { run(0, op, op->dtype); }
CONTINUA_API void continua_norm_act_conv_vjp(const NormActConv *op) { run(1, op, op->dtype); }
CONTINUA_API void continua_norm_act(const NormAct *op) { run(2, op, op->dtype); }
CONTINUA_API void continua_norm_act_vjp(const NormAct *op) { run(3, op, op->dtype); }
CONTINUA_API void continua_combine(const Combine *op) { run(4, op, op->dtype); }
CONTINUA_API void continua_error_sums(const ErrorSums *op) { run(5, op, op->dtype); }
CONTINUA_API void continua_field(const ConvField *op) { run(6, op, op->first.dtype); }
CONTINUA_API void continua_field_vjp(const ConvField *op) { run(7, op, op->first.dtype); }
