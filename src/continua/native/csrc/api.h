// What the library offers: plain pointers and sizes. The Python side (native/library.py) mirrors these structures field by field.
#pragma once
#include <cstdint>

enum Activation : int32_t { IDENTITY, RELU, CELU, GELU, SILU, SOFTPLUS, TANH };

// Strides in elements: sample, channel, row, column.
struct MapStrides {
  int64_t sample, channel, row, column;
};

// y = jet(act(norm(x))) + bias + t m, of every image of a batch; and its vector-Jacobian product.
struct NormActConv {
  int32_t dtype; // 32 or 64
  int32_t batch, in, out, height, width;
  int32_t order, stride, reach_y, reach_x;
  int32_t groups; // of the norm; 0: none
  int32_t activation;
  int32_t threads;
  int32_t times;          // how many times t holds: 1 or batch; 0: no time term
  int32_t own_taps;       // not 0: every output channel has its own, rows and cols are (out, order + 1, 2 reach + 1); all samples share them
  int64_t alpha_sample;   // elements between two samples' coefficients; 0: shared
  int64_t rows_sample, cols_sample; // likewise for the taps
  double eps;
  // inputs
  const void *x;
  MapStrides x_strides;
  const void *gamma, *beta;       // (in), or null: 1 and 0
  const void *alpha;              // (basis, in, out), the pairs as in jet_orders: (0, N), ..., (0, 0), (1, N - 1), ...
  const void *rows, *cols;        // (order + 1, 2 reach + 1)
  const void *bias;               // (out) or null
  const void *t, *time_map;       // (times), (out, out_height, out_width)
  void *y;
  MapStrides y_strides;
  // Where the taps of the columns follow from one number: the direction in which they move with it, like cols. Then y_along, laid out like y, is the
  // derivative of y in that direction, made forwards and read backwards, and g_along (batch) is what replaces g_cols. Stride 1.
  const void *along;
  void *y_along;
  // backward
  const void *gy;
  MapStrides gy_strides;
  void *gx; // or null: not wanted; likewise below
  MapStrides gx_strides;
  void *g_gamma, *g_beta, *g_alpha, *g_rows, *g_cols, *g_along, *g_bias, *g_t, *g_time_map;
};

// y = act(norm(x)) of every image, and its vector-Jacobian product.
struct NormAct {
  int32_t dtype, batch, channels, height, width, groups, activation, threads;
  double eps;
  const void *x;
  MapStrides x_strides;
  const void *gamma, *beta;
  void *y;
  MapStrides y_strides;
  const void *gy;
  MapStrides gy_strides;
  void *gx;
  MapStrides gx_strides;
  void *g_gamma, *g_beta;
};

// The papers' field: last(second(first(x))) of every image, and its vector-Jacobian product. The inner maps lie without gaps: second.x is first.y,
// last.x is second.y. Forwards both may be null (not kept). Backwards their gradients live inside; first.gy, second.gx, second.gy and last.gx are not
// read, only their strides are. All samples share their kernels.
struct ConvField {
  NormActConv first, second;
  NormAct last;
};

// out = base + sum_i weights[i] terms[i] (base null: 0), in one pass. All lie in the same order in memory.
struct Combine {
  int32_t dtype, terms, threads, unused;
  int64_t count;
  void *out;
  const void *base;
  const void *const *of;
  const double *weights;
};

// Sum of (error / (atol + rtol max(|y0|, |y1|)))^2 over each of `parts` equal stretches of memory, in one pass.
struct ErrorSums {
  int32_t dtype, parts, threads, unused;
  int64_t count;
  double rtol, atol;
  const void *error, *y0, *y1;
  double *sums;
};

typedef void (*Work)(void *);
typedef void (*Parallel)(Work, void *, unsigned threads, unsigned flags); // libgomp's GOMP_parallel
