// One N-jet convolution of one image (DCN eq. 1 and 8): Y = sum_ij (L_i X R_j^T) A_ij, i + j <= N.
//
// Maps are (height, width, channels) with the channels padded by zeros to whole vectors. A band of output rows at a time: filter down the rows (F), filter
// along the columns into the responses of all basis functions side by side (E), one product with the stacked coefficients. Everything between
// input and output stays in the first two caches. Backward filters again instead of storing. Taps that are even and odd in turn, as those of
// Gaussian derivatives are, have shorter ways: fans.h.
#pragma once
#include "gemm.h"
#include <algorithm>
#include <type_traits>

namespace CONTINUA_ISA {

struct Jet {
  int order, height, width, stride, reach_y, reach_x; // taps: (order + 1, 2 reach + 1), row by row
  int in, out;                                        // channels, padded to whole vectors
  int derivatives() const { return order + 1; }
  int basis() const { return (order + 1) * (order + 2) / 2; }
  int out_height() const { return (height - 1) / stride + 1; }
  int out_width() const { return (width - 1) / stride + 1; }
  int row_of(int i) const { return i * (order + 1) - i * (i - 1) / 2; } // place of (i, 0) among the pairs: (0,0) (0,1) ... (1,0) ...
  template <class T> int band() const {
    const int row = std::max(1, out_width() * basis() * in * (int)sizeof(T));
    const int most = std::clamp(163840 / row, 1, out_height()), bands = (out_height() + most - 1) / most;
    return (out_height() + bands - 1) / bands; // all about equally high
  }
};

// Taps with zeros around them, for loops that serve a few neighbouring outputs at once.
constexpr int AT_ONCE = 4;
static inline size_t wide_taps_size(int derivatives, int reach) { return (size_t)derivatives * (2 * reach + 2 * AT_ONCE - 1); }

template <class T> static void widen_taps(const T *taps, int derivatives, int reach, T *to) {
  const int size = 2 * reach + 1, wide = 2 * reach + 2 * AT_ONCE - 1;
  std::memset(to, 0, sizeof(T) * wide_taps_size(derivatives, reach));
  for (int i = 0; i < derivatives; i++) std::memcpy(to + i * wide + AT_ONCE - 1, taps + i * size, sizeof(T) * size);
}

// F[q][x][i] = sum_k rows_i[k] S[y(q) + k][x], for the output rows from `first` on.
template <class T, int D, int B>
static inline void filter_rows_block(const T *S, size_t line, const T *taps, int reach, int low, int high, T *const *F, int step) {
  const int W = Simd<T>::width, size = 2 * reach + 1;
  Vec<T> a[D][B];
  for (int i = 0; i < D; i++)
    for (int b = 0; b < B; b++) a[i][b] = Vec<T>{};
  for (int k = low; k <= high; k++) {
    Vec<T> z[B];
    for (int b = 0; b < B; b++) z[b] = load(S + (ptrdiff_t)k * (ptrdiff_t)line + W * b);
    for (int i = 0; i < D; i++) {
      const T d = taps[i * size + reach + k];
      for (int b = 0; b < B; b++) a[i][b] += d * z[b];
    }
  }
  for (int b = 0; b < B; b++)
    for (int i = 0; i < D; i++) store(F[b] + (size_t)i * step, a[i][b]);
}

template <class T, int D> static void filter_rows(const Jet &jet, const T *S, const T *taps, int first, int rows, T *F) {
  const int W = Simd<T>::width, cp = jet.in;
  const size_t line = (size_t)jet.width * cp;
  constexpr int B = CONTINUA_VECTOR_BYTES == 64 ? (D <= 3 ? 4 : 2) : 2;
  for (int q = 0; q < rows; q++) {
    const int y = (first + q) * jet.stride;
    const int low = std::max(-jet.reach_y, -y), high = std::min(jet.reach_y, jet.height - 1 - y);
    const T *from = S + (size_t)y * line;
    T *to = F + (size_t)q * jet.width * D * cp;
    size_t at = 0;
    auto target = [&](size_t flat) { return to + flat / cp * (size_t)(D * cp) + flat % cp; };
    for (; at + (size_t)B * W <= line; at += (size_t)B * W) {
      T *into[B];
      for (int b = 0; b < B; b++) into[b] = target(at + (size_t)b * W);
      filter_rows_block<T, D, B>(from + at, line, taps, jet.reach_y, low, high, into, cp);
    }
    for (; at < line; at += W) {
      T *into[1] = {target(at)};
      filter_rows_block<T, D, 1>(from + at, line, taps, jet.reach_y, low, high, into, cp);
    }
  }
}

// E[q][x][(i, j)] = sum_k cols_j[k] F[q][x stride + k][i].
template <class T, int D, int B>
static inline void filter_columns_block(const T *F, size_t step, int cp, const T *taps, int reach, int low, int high, T *E) {
  const int W = Simd<T>::width, size = 2 * reach + 1;
  constexpr int P = D * (D + 1) / 2;
  Vec<T> a[P][B];
  for (int p = 0; p < P; p++)
    for (int b = 0; b < B; b++) a[p][b] = Vec<T>{};
  for (int k = low; k <= high; k++) {
    Vec<T> d[D];
    for (int j = 0; j < D; j++) d[j] = splat(taps[j * size + reach + k]);
    int p = 0;
    for (int i = 0; i < D; i++)
      for (int b = 0; b < B; b++) {
        const Vec<T> f = load(F + (ptrdiff_t)k * (ptrdiff_t)step + (size_t)i * cp + W * b);
        p = i * D - i * (i - 1) / 2;
        for (int j = 0; j + i < D; j++) a[p + j][b] += d[j] * f;
      }
  }
  for (int p = 0; p < P; p++)
    for (int b = 0; b < B; b++) store(E + (size_t)p * cp + W * b, a[p][b]);
}

template <class T, int D> static void filter_columns(const Jet &jet, const T *F, const T *taps, int rows, T *E) {
  const int W = Simd<T>::width, cp = jet.in, wide = jet.out_width();
  constexpr int P = D * (D + 1) / 2, B = D <= 3 ? 2 : 1;
  const size_t step = (size_t)D * cp;
  for (int q = 0; q < rows; q++)
    for (int x = 0; x < wide; x++) {
      const int at = x * jet.stride;
      const int low = std::max(-jet.reach_x, -at), high = std::min(jet.reach_x, jet.width - 1 - at);
      const T *from = F + ((size_t)q * jet.width + at) * step;
      T *to = E + ((size_t)q * wide + x) * P * cp;
      int v = 0;
      for (; v + B * W <= cp; v += B * W) filter_columns_block<T, D, B>(from + v, step, cp, taps, jet.reach_x, low, high, to + v);
      for (; v < cp; v += W) filter_columns_block<T, D, 1>(from + v, step, cp, taps, jet.reach_x, low, high, to + v);
    }
}

// Q[q][x][i] = sum_j sum_k cols_j[k] gE[q][(x - k) / stride][(i, j)]: the transpose of filter_columns.
template <class T, int D, int B>
static inline void spread_columns_block(const Jet &jet, const T *gE, int x, const T *taps, T *Q) {
  const int W = Simd<T>::width, cp = jet.in, reach = jet.reach_x, size = 2 * reach + 1, wide = jet.out_width();
  constexpr int P = D * (D + 1) / 2;
  Vec<T> a[D][B];
  for (int i = 0; i < D; i++)
    for (int b = 0; b < B; b++) a[i][b] = Vec<T>{};
  const int first = std::max(0, (x - reach + jet.stride - 1) / jet.stride), last = std::min(wide - 1, (x + reach) / jet.stride);
  for (int o = x < reach ? 0 : first; o <= last; o++) {
    const T *g = gE + (size_t)o * P * cp;
    const int k = x - o * jet.stride;
    Vec<T> d[D];
    for (int j = 0; j < D; j++) d[j] = splat(taps[j * size + reach + k]);
    for (int i = 0; i < D; i++) {
      const int p = i * D - i * (i - 1) / 2;
      for (int j = 0; j + i < D; j++)
        for (int b = 0; b < B; b++) a[i][b] += d[j] * load(g + (size_t)(p + j) * cp + W * b);
    }
  }
  for (int i = 0; i < D; i++)
    for (int b = 0; b < B; b++) store(Q + (size_t)i * cp + W * b, a[i][b]);
}

template <class T, int D> static void spread_columns(const Jet &jet, const T *gE, const T *taps, int rows, T *Q) {
  const int W = Simd<T>::width, cp = jet.in, wide = jet.out_width();
  constexpr int P = D * (D + 1) / 2, B = 2;
  for (int q = 0; q < rows; q++)
    for (int x = 0; x < jet.width; x++) {
      const T *from = gE + (size_t)q * wide * P * cp;
      T *to = Q + ((size_t)q * jet.width + x) * D * cp;
      int v = 0;
      for (; v + B * W <= cp; v += B * W) spread_columns_block<T, D, B>(jet, from + v, x, taps, to + v);
      for (; v < cp; v += W) spread_columns_block<T, D, 1>(jet, from + v, x, taps, to + v);
    }
}

// gS[y][x] = sum_i sum_q rows_i[y - y(q)] Q[q][x][i] over all output rows q: the transpose of filter_rows. A few rows of gS at a time, so that a line of Q
// is read once for all of them.
template <class T, int D, int B>
static inline void spread_rows_block(const Jet &jet, const T *Q, int top, int first, int last, const T *wide_taps, int size, T *gS) {
  const int W = Simd<T>::width, cp = jet.in;
  const size_t line = (size_t)jet.width * D * cp;
  Vec<T> a[AT_ONCE][B];
  for (int r = 0; r < AT_ONCE; r++)
    for (int b = 0; b < B; b++) a[r][b] = Vec<T>{};
  for (int q = first; q <= last; q++)
    for (int i = 0; i < D; i++) {
      Vec<T> f[B];
      for (int b = 0; b < B; b++) f[b] = load(Q + (size_t)q * line + (size_t)i * cp + W * b);
      const T *d = wide_taps + i * size + jet.reach_y + AT_ONCE - 1 + top - q * jet.stride;
      for (int r = 0; r < AT_ONCE; r++)
        for (int b = 0; b < B; b++) a[r][b] += d[r] * f[b];
    }
  for (int r = 0; r < AT_ONCE && top + r < jet.height; r++)
    for (int b = 0; b < B; b++) store(gS + (size_t)(top + r) * jet.width * cp + W * b, a[r][b]);
}

template <class T, int D> static void spread_rows(const Jet &jet, const T *Q, const T *wide_taps, T *gS) {
  const int W = Simd<T>::width, cp = jet.in, reach = jet.reach_y, size = 2 * reach + 2 * AT_ONCE - 1;
  for (int top = 0; top < jet.height; top += AT_ONCE) {
    const int first = top <= reach ? 0 : (top - reach + jet.stride - 1) / jet.stride;
    const int last = std::min(jet.out_height() - 1, (top + AT_ONCE - 1 + reach) / jet.stride);
    for (int x = 0; x < jet.width; x++) {
      const T *from = Q + (size_t)x * D * cp;
      T *to = gS + (size_t)x * cp;
      int v = 0;
      for (; v + 2 * W <= cp; v += 2 * W) spread_rows_block<T, D, 2>(jet, from + v, top, first, last, wide_taps, size, to + v);
      if (v < cp) spread_rows_block<T, D, 1>(jet, from + v, top, first, last, wide_taps, size, to + v);
    }
  }
}

// sums[i][k] += Q[q][x][i] . S[y(q) + k][x], as vectors: the gradient of the taps of filter_rows.
template <class T, int D, int K>
static inline void row_taps_block(const T *Q, const T *S, ptrdiff_t line, int width, int cp, int k, Vec<T> *sums, int size) {
  const int W = Simd<T>::width;
  Vec<T> a[D][K];
  for (int i = 0; i < D; i++)
    for (int b = 0; b < K; b++) a[i][b] = sums[i * size + b];
  for (int x = 0; x < width; x++)
    for (int v = 0; v < cp; v += W) {
      Vec<T> s[K];
      for (int b = 0; b < K; b++) s[b] = load(S + (k + b) * line + (size_t)x * cp + v);
      for (int i = 0; i < D; i++) {
        const Vec<T> f = load(Q + ((size_t)x * D + i) * cp + v);
        for (int b = 0; b < K; b++) a[i][b] += f * s[b];
      }
    }
  for (int i = 0; i < D; i++)
    for (int b = 0; b < K; b++) sums[i * size + b] = a[i][b];
}

template <class T, int D> static void row_taps(const Jet &jet, const T *Q, const T *S, int first, int rows, Vec<T> *sums) {
  const int cp = jet.in, reach = jet.reach_y, size = 2 * reach + 1;
  const ptrdiff_t line = (ptrdiff_t)jet.width * cp;
  constexpr int K = CONTINUA_VECTOR_BYTES == 64 ? 4 : 2;
  for (int q = 0; q < rows; q++) {
    const int y = (first + q) * jet.stride;
    const int high = std::min(reach, jet.height - 1 - y);
    int k = std::max(-reach, -y);
    const T *from = Q + (size_t)q * jet.width * D * cp, *at = S + y * line;
    for (; k + K - 1 <= high; k += K) row_taps_block<T, D, K>(from, at, line, jet.width, cp, k, sums + reach + k, size);
    for (; k <= high; k++) row_taps_block<T, D, 1>(from, at, line, jet.width, cp, k, sums + reach + k, size);
  }
}

// sums[j][k] += gE[q][x][(i, j)] . F[q][x stride + k][i], as vectors, of K taps from k on at the outputs low ... high: the gradient of the taps of filter_columns.
template <class T, int D, int K>
static inline void column_taps_block(const T *gE, const T *F, int cp, int stride, int low, int high, int k, Vec<T> *sums, int size) {
  constexpr int P = D * (D + 1) / 2;
  Vec<T> a[D][K];
  for (int j = 0; j < D; j++)
    for (int b = 0; b < K; b++) a[j][b] = sums[j * size + b];
  for (int x = low; x <= high; x++) {
    const T *f = F + (ptrdiff_t)(x * stride + k) * D * cp, *g = gE + (size_t)x * P * cp;
    for (int i = 0; i < D; i++) {
      Vec<T> z[K];
      for (int b = 0; b < K; b++) z[b] = load(f + (size_t)(b * D + i) * cp);
      const int p = i * D - i * (i - 1) / 2;
      for (int j = 0; j + i < D; j++) {
        const Vec<T> d = load(g + (size_t)(p + j) * cp);
        for (int b = 0; b < K; b++) a[j][b] += d * z[b];
      }
    }
  }
  for (int j = 0; j < D; j++)
    for (int b = 0; b < K; b++) sums[j * size + b] = a[j][b];
}

template <class T, int D> static void column_taps(const Jet &jet, const T *gE, const T *F, int rows, Vec<T> *sums) {
  const int W = Simd<T>::width, cp = jet.in, reach = jet.reach_x, size = 2 * reach + 1, wide = jet.out_width(), stride = jet.stride;
  constexpr int P = D * (D + 1) / 2, K = CONTINUA_VECTOR_BYTES == 64 ? 4 : 2;
  // Outputs that tap k can serve: 0 <= x stride + k < width.
  auto lowest = [&](int k) { return k >= 0 ? 0 : (-k + stride - 1) / stride; };
  auto highest = [&](int k) { return jet.width - 1 - k < 0 ? -1 : std::min(wide - 1, (jet.width - 1 - k) / stride); };
  for (int q = 0; q < rows; q++)
    for (int v = 0; v < cp; v += W) {
      const T *g = gE + (size_t)q * wide * P * cp + v, *f = F + (size_t)q * jet.width * D * cp + v;
      for (int k = -reach; k <= reach;) {
        const int low = lowest(k), high = highest(k + K - 1); // where all K taps serve
        if (k + K - 1 > reach || low > high) {
          column_taps_block<T, D, 1>(g, f, cp, stride, low, highest(k), k, sums + reach + k, size);
          k++;
          continue;
        }
        for (int b = 0; b < K; b++) {
          column_taps_block<T, D, 1>(g, f, cp, stride, lowest(k + b), low - 1, k + b, sums + reach + k + b, size);
          column_taps_block<T, D, 1>(g, f, cp, stride, high + 1, highest(k + b), k + b, sums + reach + k + b, size);
        }
        column_taps_block<T, D, K>(g, f, cp, stride, low, high, k, sums + reach + k, size);
        k += K;
      }
    }
}

} // namespace CONTINUA_ISA
