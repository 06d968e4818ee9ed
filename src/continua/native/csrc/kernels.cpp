// The operators for one instruction set: compiled once for each, under a namespace of its own (-DCONTINUA_ISA=...).
#include "convolution.h"
#include "work.h"

namespace CONTINUA_ISA {

// The same for any order.
template <class T> static void forward_one(const Convolution<T> &conv, int n, const T *panels, const T *x, T *y) {
  switch (conv.op.order) {
  case 0: return conv.template forward<1>(n, panels, x, y);
  case 1: return conv.template forward<2>(n, panels, x, y);
  case 2: return conv.template forward<3>(n, panels, x, y);
  case 3: return conv.template forward<4>(n, panels, x, y);
  default: return conv.template forward<5>(n, panels, x, y);
  }
}
template <class T>
static void backward_one(const Convolution<T> &conv, int n, const T *turned, const typename Convolution<T>::Sums &sums, const T *x, const T *gy, T *gx) {
  switch (conv.op.order) {
  case 0: return conv.template backward<1>(n, turned, sums, x, gy, gx);
  case 1: return conv.template backward<2>(n, turned, sums, x, gy, gx);
  case 2: return conv.template backward<3>(n, turned, sums, x, gy, gx);
  case 3: return conv.template backward<4>(n, turned, sums, x, gy, gx);
  default: return conv.template backward<5>(n, turned, sums, x, gy, gx);
  }
}

// Where sample n of a map begins; null where there is no map.
template <class T> static const T *sample(const void *x, const MapStrides &s, int n) { return x ? (const T *)x + n * s.sample : nullptr; }
template <class T> static T *sample(void *x, const MapStrides &s, int n) { return x ? (T *)x + n * s.sample : nullptr; }

template <class T> static void forward(const NormActConv &op, Parallel parallel) {
  const Convolution<T> conv(op);
  hall.reserve(2 * (conv.packed * sizeof(T) + 64));
  T *stacked = hall.take<T>(conv.packed), *panels = hall.take<T>(conv.packed);
  if (!op.alpha_sample) conv.pack((const T *)op.alpha, stacked, panels, [&](int count, auto piece) { each(count, op.threads, parallel, piece); });
  each(op.batch, op.threads, parallel,
       [&](int n) { forward_one(conv, n, panels, sample<T>(op.x, op.x_strides, n), sample<T>(op.y, op.y_strides, n)); });
}

// The sums of all parts, first to last, into the caller's tensors; of coefficients and taps part by part where every sample has its own.
template <class T> static void collect(const Convolution<T> &conv, T *all, size_t size, int parts, Parallel parallel) {
  const NormActConv &op = conv.op;
  const int W = Simd<T>::width;
  auto taps = [&](const Vec<T> *sums, size_t count, T *to, bool fresh) {
    for (size_t i = 0; i < count; i++) to[i] = (fresh ? T(0) : to[i]) + sum<T>(sums[i]);
  };
  auto add = [&](T *to, const T *from, size_t count) {
    for (size_t i = 0; i < count; i += W) store(to + i, load(to + i) + load(from + i));
  };
  typename Convolution<T>::Sums first = conv.sums(all);
  for (int part = 0; part < parts; part++) {
    const typename Convolution<T>::Sums s = conv.sums(all + size * part);
    if (op.own_taps) {
      const int D = conv.jet.derivatives();
      if (op.g_rows) OwnTaps<T>::turn_back((const T *)s.rows, D, 2 * op.reach_y + 1, op.out, conv.op_, (T *)op.g_rows, part == 0);
      if (op.g_cols) OwnTaps<T>::turn_back((const T *)s.cols, D, 2 * op.reach_x + 1, op.out, conv.op_, (T *)op.g_cols, part == 0);
    } else {
      if (op.g_rows) taps(s.rows, conv.taps_y, (T *)op.g_rows + part * op.rows_sample, part == 0 || op.rows_sample);
      if (op.g_cols) taps(s.cols, conv.taps_x, (T *)op.g_cols + part * op.cols_sample, part == 0 || op.cols_sample);
    }
    if (op.g_alpha && op.alpha_sample) conv.unstack(s.alpha, (T *)op.g_alpha + part * op.alpha_sample, conv.mixes_first_back());
    if (part == 0) continue;
    add(first.gamma, s.gamma, conv.cp), add(first.beta, s.beta, conv.cp), add(first.bias, s.bias, conv.op_);
  }
  if (op.g_time_map)
    each(conv.jet.out_height(), op.threads, parallel, [&](int row) {
      const size_t wide = conv.jet.out_width(), from = row * wide;
      for (int part = 1; part < parts; part++) add(first.time_map + from * conv.op_, conv.sums(all + size * part).time_map + from * conv.op_, wide * conv.op_);
      for (size_t p = from; p < from + wide; p++) std::memcpy((T *)op.g_time_map + p * op.out, first.time_map + p * conv.op_, sizeof(T) * op.out);
    });
  if (op.g_alpha && !op.alpha_sample) {
    each(conv.K / W, op.threads, parallel, [&](int slice) {
      const size_t from = (size_t)slice * W * conv.op_;
      for (int part = 1; part < parts; part++) add(first.alpha + from, conv.sums(all + size * part).alpha + from, (size_t)W * conv.op_);
    });
    conv.unstack(first.alpha, (T *)op.g_alpha, conv.mixes_first_back());
  }
  if (op.g_gamma) std::memcpy(op.g_gamma, first.gamma, sizeof(T) * op.in);
  if (op.g_beta) std::memcpy(op.g_beta, first.beta, sizeof(T) * op.in);
  if (op.g_bias) std::memcpy(op.g_bias, first.bias, sizeof(T) * op.out);
}

// Into how many parts a batch is cut for sums over it: each large enough that clearing and adding its sums costs little beside making them.
static int parts_of(int batch, int pixels) { return std::clamp((int)std::min<int64_t>((int64_t)batch * pixels / 256, 32), 1, std::max(1, batch)); }

// The first image of a part.
static int begin_of(int part, int parts, int batch) { return (int)((int64_t)batch * part / parts); }

template <class T> static void backward(const NormActConv &op, Parallel parallel) {
  const Convolution<T> conv(op);
  const bool apart = op.alpha_sample || op.rows_sample || op.cols_sample; // every sample has its own kernel: nothing of it is summed
  const int parts = apart ? op.batch : parts_of(op.batch, conv.out_pixels);
  const size_t size = (conv.sums_size() + 15) / 16 * 16;
  hall.reserve(2 * (conv.packed * sizeof(T) + 64) + size * parts * sizeof(T));
  T *stacked = hall.take<T>(conv.packed), *turned = hall.take<T>(conv.packed), *all = hall.take<T>(size * parts);
  if (!op.alpha_sample) conv.pack_back((const T *)op.alpha, stacked, turned, [&](int count, auto piece) { each(count, op.threads, parallel, piece); });
  each(parts, op.threads, parallel, [&](int part) {
    T *at = all + size * part;
    std::memset(at, 0, sizeof(T) * size);
    const typename Convolution<T>::Sums sums = conv.sums(at);
    for (int n = begin_of(part, parts, op.batch); n < begin_of(part + 1, parts, op.batch); n++)
      backward_one(conv, n, stacked, sums, sample<T>(op.x, op.x_strides, n), sample<T>(op.gy, op.gy_strides, n), sample<T>(op.gx, op.gx_strides, n));
  });
  collect(conv, all, size, parts, parallel);
}

#include "norms.h"
#include "field.h"

const int64_t STRETCH = 1 << 14; // numbers that are worth a thread's while
const int MOST_TERMS = 32;

template <class T> static void combine(const Combine &op, Parallel parallel) {
  const int W = Simd<T>::width;
  each((int)((op.count + STRETCH - 1) / STRETCH), op.threads, parallel, [&](int piece) {
    const int64_t from = piece * STRETCH, to = std::min(op.count, from + STRETCH);
    T w[MOST_TERMS];
    for (int i = 0; i < op.terms; i++) w[i] = (T)op.weights[i];
    const int first = op.base ? 0 : 1;
    int64_t p = from;
    for (; p + W <= to; p += W) {
      Vec<T> a = op.base ? load((const T *)op.base + p) : w[0] * load((const T *)op.of[0] + p);
      for (int i = first; i < op.terms; i++) a += w[i] * load((const T *)op.of[i] + p);
      store((T *)op.out + p, a);
    }
    for (; p < to; p++) {
      T a = op.base ? ((const T *)op.base)[p] : w[0] * ((const T *)op.of[0])[p];
      for (int i = first; i < op.terms; i++) a = std::fma(w[i], ((const T *)op.of[i])[p], a);
      ((T *)op.out)[p] = a;
    }
  });
}

template <class T> static void error_sums(const ErrorSums &op, Parallel parallel) {
  const int W = Simd<T>::width;
  const int64_t stretch = (op.count + op.parts - 1) / op.parts;
  each(op.parts, op.threads, parallel, [&](int part) {
    const int64_t from = std::min(op.count, part * stretch), to = std::min(op.count, from + stretch);
    const T *e = (const T *)op.error, *a = (const T *)op.y0, *b = (const T *)op.y1, rtol = (T)op.rtol, atol = (T)op.atol;
    double total = 0;
    int64_t p = from;
    while (p + W <= to) { // short sums in T, long ones in double
      Vec<T> s{};
      for (int i = 0; i < 64 && p + W <= to; i++, p += W) {
        Vec<T> u = load(a + p), v = load(b + p);
        u = u < 0 ? -u : u, v = v < 0 ? -v : v;
        const Vec<T> r = load(e + p) / (atol + rtol * (u > v ? u : v + u * T(0))); // a NaN in either stays
        s += r * r;
      }
      for (int i = 0; i < W; i++) total += (double)s[i];
    }
    for (; p < to; p++) {
      const T u = std::fabs(a[p]), v = std::fabs(b[p]), r = e[p] / (atol + rtol * (u > v ? u : v + u * T(0)));
      total += (double)r * (double)r;
    }
    op.sums[part] = total;
  });
}

void run(int what, const void *op, int dtype, Parallel parallel) {
  const bool narrow = dtype == 32;
  if (what == 0) narrow ? forward<float>(*(const NormActConv *)op, parallel) : forward<double>(*(const NormActConv *)op, parallel);
  if (what == 1) narrow ? backward<float>(*(const NormActConv *)op, parallel) : backward<double>(*(const NormActConv *)op, parallel);
  if (what == 2) narrow ? norm_act<float>(*(const NormAct *)op, parallel) : norm_act<double>(*(const NormAct *)op, parallel);
  if (what == 3) narrow ? norm_act_vjp<float>(*(const NormAct *)op, parallel) : norm_act_vjp<double>(*(const NormAct *)op, parallel);
  if (what == 4) narrow ? combine<float>(*(const Combine *)op, parallel) : combine<double>(*(const Combine *)op, parallel);
  if (what == 5) narrow ? error_sums<float>(*(const ErrorSums *)op, parallel) : error_sums<double>(*(const ErrorSums *)op, parallel);
  if (what == 6) narrow ? field<float>(*(const ConvField *)op, parallel) : field<double>(*(const ConvField *)op, parallel);
  if (what == 7) narrow ? field_vjp<float>(*(const ConvField *)op, parallel) : field_vjp<double>(*(const ConvField *)op, parallel);
  hall.trim();
}

} // namespace CONTINUA_ISA
