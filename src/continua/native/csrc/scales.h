// An N-jet whose output channels have taps of their own (a sigma each): Y_o = sum_ij L_i^o (X A_ij)_o R_j^oT, i + j <= N.
//
// The channels are mixed first, into a map Z_ij of every basis function; then each channel is filtered by its own taps, along the columns into
// U_i and down the rows. Backwards the same way round: V_i, the gradient of U_i, then that of Z_ij, then products. Taps are turned, so that
// neighbouring channels have theirs side by side: (derivatives, taps, out).
#pragma once
#include "jet.h"
#include <vector>

namespace CONTINUA_ISA {

template <class T> struct OwnTaps {
  std::vector<T> rows, cols; // (derivatives, taps, out padded)
  std::vector<T> mix, back;  // coefficients (in, basis * out) and their transpose, in panels

  static void turn(const T *taps, int derivatives, int size, int out, int padded_out, std::vector<T> &to) {
    to.assign((size_t)derivatives * size * padded_out, T(0));
    for (int o = 0; o < out; o++)
      for (int d = 0; d < derivatives * size; d++) to[(size_t)d * padded_out + o] = taps[(size_t)o * derivatives * size + d];
  }
  static void turn_back(const T *sums, int derivatives, int size, int out, int padded_out, T *taps, bool fresh) {
    for (int o = 0; o < out; o++)
      for (int d = 0; d < derivatives * size; d++) {
        T &to = taps[(size_t)o * derivatives * size + d];
        to = (fresh ? T(0) : to) + sums[(size_t)d * padded_out + o];
      }
  }
};

// How many rows of Z are made at once: they stay in the second cache.
template <class T> static int rows_at_once(const Jet &jet) {
  return std::clamp(163840 / std::max(1, jet.width * jet.basis() * jet.out * (int)sizeof(T)), 1, std::max(1, jet.height));
}

// U[x][i] = sum_j sum_k cols_j[k] Z[x stride + k][(i, j)], of some rows.
template <class T, int D> static void own_columns(const Jet &jet, const T *Z, const T *cols, int rows, T *U) {
  const int W = Simd<T>::width, op = jet.out, reach = jet.reach_x, size = 2 * reach + 1, wide = jet.out_width();
  constexpr int P = D * (D + 1) / 2;
  for (int y = 0; y < rows; y++)
    for (int x = 0; x < wide; x++) {
      const int at = x * jet.stride, low = std::max(-reach, -at), high = std::min(reach, jet.width - 1 - at);
      const T *from = Z + ((size_t)y * jet.width + at) * P * op;
      T *to = U + ((size_t)y * wide + x) * D * op;
      for (int v = 0; v < op; v += W) {
        Vec<T> a[D];
        for (int i = 0; i < D; i++) a[i] = Vec<T>{};
        for (int k = low; k <= high; k++) {
          const T *z = from + (ptrdiff_t)k * P * op + v;
          for (int j = 0; j < D; j++) {
            const Vec<T> d = load(cols + (size_t)(j * size + reach + k) * op + v);
            for (int i = 0; i + j < D; i++) a[i] += d * load(z + (size_t)(i * D - i * (i - 1) / 2 + j) * op);
          }
        }
        for (int i = 0; i < D; i++) store(to + (size_t)i * op + v, a[i]);
      }
    }
}

// Y[q] = sum_i sum_k rows_i[k] U[q stride + k][i].
template <class T, int D> static void own_rows(const Jet &jet, const T *U, const T *rows, T *Y) {
  const int W = Simd<T>::width, op = jet.out, reach = jet.reach_y, size = 2 * reach + 1, wide = jet.out_width();
  const ptrdiff_t line = (ptrdiff_t)wide * D * op;
  for (int q = 0; q < jet.out_height(); q++) {
    const int y = q * jet.stride, low = std::max(-reach, -y), high = std::min(reach, jet.height - 1 - y);
    for (int x = 0; x < wide; x++)
      for (int v = 0; v < op; v += W) {
        const T *from = U + y * line + (ptrdiff_t)x * D * op + v;
        Vec<T> a{};
        for (int k = low; k <= high; k++)
          for (int i = 0; i < D; i++) a += load(rows + (size_t)(i * size + reach + k) * op + v) * load(from + k * line + (ptrdiff_t)i * op);
        store(Y + ((size_t)q * wide + x) * op + v, a);
      }
  }
}

// The output rows (or columns) that place `at` of the input serves: first ... last.
static inline void served(int at, int reach, int stride, int outputs, int &first, int &last) {
  first = at <= reach ? 0 : (at - reach + stride - 1) / stride;
  last = std::min(outputs - 1, (at + reach) / stride);
}

// V[y][i] = sum_q rows_i[y - q stride] G[q]: the transpose of own_rows, of the rows from `top` on.
template <class T, int D> static void own_rows_back(const Jet &jet, const T *G, const T *rows, int top, int count, T *V) {
  const int W = Simd<T>::width, op = jet.out, reach = jet.reach_y, size = 2 * reach + 1, wide = jet.out_width();
  for (int y = top; y < top + count; y++) {
    int first, last;
    served(y, reach, jet.stride, jet.out_height(), first, last);
    for (int x = 0; x < wide; x++)
      for (int v = 0; v < op; v += W) {
        Vec<T> a[D];
        for (int i = 0; i < D; i++) a[i] = Vec<T>{};
        for (int q = first; q <= last; q++) {
          const Vec<T> g = load(G + ((size_t)q * wide + x) * op + v);
          for (int i = 0; i < D; i++) a[i] += load(rows + (size_t)(i * size + reach + y - q * jet.stride) * op + v) * g;
        }
        for (int i = 0; i < D; i++) store(V + ((size_t)((y - top) * wide + x) * D + i) * op + v, a[i]);
      }
  }
}

// gZ[x][(i, j)] = sum_x' cols_j[x - x' stride] V[x'][i]: the transpose of own_columns.
template <class T, int D> static void own_columns_back(const Jet &jet, const T *V, const T *cols, int count, T *gZ) {
  const int W = Simd<T>::width, op = jet.out, reach = jet.reach_x, size = 2 * reach + 1, wide = jet.out_width();
  constexpr int P = D * (D + 1) / 2;
  for (int y = 0; y < count; y++)
    for (int x = 0; x < jet.width; x++) {
      int first, last;
      served(x, reach, jet.stride, wide, first, last);
      T *to = gZ + ((size_t)y * jet.width + x) * P * op;
      for (int v = 0; v < op; v += W) {
        Vec<T> a[P];
        for (int p = 0; p < P; p++) a[p] = Vec<T>{};
        for (int o = first; o <= last; o++) {
          Vec<T> g[D];
          for (int i = 0; i < D; i++) g[i] = load(V + ((size_t)(y * wide + o) * D + i) * op + v);
          for (int j = 0; j < D; j++) {
            const Vec<T> d = load(cols + (size_t)(j * size + reach + x - o * jet.stride) * op + v);
            for (int i = 0; i + j < D; i++) a[i * D - i * (i - 1) / 2 + j] += d * g[i];
          }
        }
        for (int p = 0; p < P; p++) store(to + (size_t)p * op + v, a[p]);
      }
    }
}

// sums[i][k] += G[q] U[q stride + k][i], of the rows from `top` on: the gradient of the taps of own_rows.
template <class T, int D> static void own_row_taps(const Jet &jet, const T *G, const T *U, int top, int count, T *sums) {
  const int W = Simd<T>::width, op = jet.out, reach = jet.reach_y, size = 2 * reach + 1, wide = jet.out_width();
  for (int y = top; y < top + count; y++) {
    int first, last;
    served(y, reach, jet.stride, jet.out_height(), first, last);
    for (int q = first; q <= last; q++)
      for (int v = 0; v < op; v += W) {
        Vec<T> a[D];
        for (int i = 0; i < D; i++) a[i] = Vec<T>{};
        for (int x = 0; x < wide; x++) {
          const Vec<T> g = load(G + ((size_t)q * wide + x) * op + v);
          for (int i = 0; i < D; i++) a[i] += g * load(U + ((size_t)((y - top) * wide + x) * D + i) * op + v);
        }
        for (int i = 0; i < D; i++) {
          T *to = sums + (size_t)(i * size + reach + y - q * jet.stride) * op + v;
          store(to, load(to) + a[i]);
        }
      }
  }
}

// sums[j][k] += V[x][i] Z[x stride + k][(i, j)]: the gradient of the taps of own_columns.
template <class T, int D> static void own_column_taps(const Jet &jet, const T *V, const T *Z, int count, T *sums) {
  const int W = Simd<T>::width, op = jet.out, reach = jet.reach_x, size = 2 * reach + 1, wide = jet.out_width(), stride = jet.stride;
  constexpr int P = D * (D + 1) / 2;
  for (int v = 0; v < op; v += W)
    for (int k = -reach; k <= reach; k++) {
      Vec<T> a[D];
      for (int j = 0; j < D; j++) a[j] = Vec<T>{};
      const int low = k >= 0 ? 0 : (-k + stride - 1) / stride, high = jet.width - 1 - k < 0 ? -1 : std::min(wide - 1, (jet.width - 1 - k) / stride);
      for (int y = 0; y < count; y++)
        for (int x = low; x <= high; x++) {
          const T *z = Z + ((ptrdiff_t)y * jet.width + x * stride + k) * P * op + v;
          for (int i = 0; i < D; i++) {
            const Vec<T> g = load(V + ((size_t)(y * wide + x) * D + i) * op + v);
            for (int j = 0; i + j < D; j++) a[j] += g * load(z + (size_t)(i * D - i * (i - 1) / 2 + j) * op);
          }
        }
      for (int j = 0; j < D; j++) {
        T *to = sums + (size_t)(j * size + reach + k) * op + v;
        store(to, load(to) + a[j]);
      }
    }
}

} // namespace CONTINUA_ISA
