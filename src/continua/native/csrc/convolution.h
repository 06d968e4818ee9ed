// One norm -> activation -> N-jet convolution -> time term of one image after another, and its vector-Jacobian product.
#pragma once
#include "fans.h"
#include "maps.h"
#include "room.h"
#include "scales.h"

namespace CONTINUA_ISA {

template <class T> struct Convolution {
  const NormActConv &op;
  Jet jet;
  int cp, op_, K, pixels, out_pixels;
  size_t packed, taps_y, taps_x;
  bool alternating; // the taps are even and odd in turn: fans.h serves
  OwnTaps<T> own;   // where every output channel has its own: scales.h serves

  explicit Convolution(const NormActConv &given) : op(given) {
    cp = padded<T>(op.in), op_ = padded<T>(op.out);
    jet = Jet{op.order, op.height, op.width, op.stride, op.reach_y, op.reach_x, cp, op_};
    K = jet.basis() * cp;
    pixels = op.height * op.width, out_pixels = jet.out_height() * jet.out_width();
    packed = (size_t)K * op_;
    taps_y = (size_t)jet.derivatives() * (2 * op.reach_y + 1), taps_x = (size_t)jet.derivatives() * (2 * op.reach_x + 1);
    alternating = !op.own_taps;
    if (op.own_taps) {
      gather_own();
      return;
    }
    for (int n = 0; n < (op.rows_sample ? op.batch : 1); n++) alternating = alternating && alternate(rows(n), jet.derivatives(), op.reach_y);
    for (int n = 0; n < (op.cols_sample ? op.batch : 1); n++)
      alternating = alternating && alternate(cols(n), jet.derivatives(), op.reach_x) && (!op.along || alternate(along(n), jet.derivatives(), op.reach_x));
  }
  // Taps turned and coefficients packed for scales.h, once for all images. Sums of taps are kept for every channel, padded.
  void gather_own() {
    const int D = jet.derivatives(), P = jet.basis(), W = Simd<T>::width;
    OwnTaps<T>::turn((const T *)op.rows, D, 2 * op.reach_y + 1, op.out, op_, own.rows);
    OwnTaps<T>::turn((const T *)op.cols, D, 2 * op.reach_x + 1, op.out, op_, own.cols);
    taps_y *= op_ / W, taps_x *= op_ / W;
    std::vector<T> matrix(packed), turned(packed);
    each_coefficient([&](size_t given, int c, size_t column) { matrix[(size_t)c * P * op_ + column] = ((const T *)op.alpha)[given]; });
    transpose(matrix.data(), cp, P * op_, turned.data(), cp);
    own.mix.resize(packed), own.back.resize(packed);
    pack_panels(cp, P * op_, matrix.data(), P * op_, own.mix.data());
    pack_panels(P * op_, cp, turned.data(), cp, own.back.data());
  }
  // Every coefficient: its place in the caller's tensor, its input channel, and its column among (basis, out).
  template <class F> void each_coefficient(const F &at) const {
    for (int i = 0; i <= op.order; i++)
      for (int j = 0; i + j <= op.order; j++)
        for (int c = 0; c < op.in; c++)
          for (int o = 0; o < op.out; o++)
            at(((size_t)given_place(i, j) * op.in + c) * op.out + o, c, (size_t)(jet.row_of(i) + j) * op_ + o);
  }
  const T *rows(int n) const { return (const T *)op.rows + n * op.rows_sample; }
  const T *cols(int n) const { return (const T *)op.cols + n * op.cols_sample; }
  const T *along(int n) const { return (const T *)op.along + n * op.cols_sample; }
  const T *alpha(int n) const { return (const T *)op.alpha + n * op.alpha_sample; }
  T time(int n) const { return ((const T *)op.t)[op.times == 1 ? 0 : n]; }

  // Where (i, j) stands in the caller's order, (0, N), (0, N - 1), ..., (0, 0), (1, N - 1), ...
  int given_place(int i, int j) const { return jet.row_of(i) + (op.order - i - j); }

  // The coefficients as one matrix (basis * in, out), padded: A_00, A_01, ... row by row, or column by column. One row (column) of them at a time.
  void stack(const T *alpha, T *to, bool by_column, int major) const {
    for (int minor = 0; major + minor <= op.order; minor++) {
      const int i = by_column ? minor : major, j = by_column ? major : minor;
      T *at = to + (size_t)(jet.row_of(major) + minor) * cp * op_;
      if (cp != op.in || op_ != op.out) std::memset(at, 0, sizeof(T) * cp * op_);
      for (int c = 0; c < op.in; c++)
        std::memcpy(at + (size_t)c * op_, alpha + ((size_t)given_place(i, j) * op.in + c) * op.out, sizeof(T) * op.out);
    }
  }
  void unstack(const T *from, T *alpha, bool by_column) const {
    if (op.own_taps) return each_coefficient([&](size_t given, int c, size_t column) { alpha[given] = from[(size_t)c * jet.basis() * op_ + column]; });
    for (int i = 0; i <= op.order; i++)
      for (int j = 0; i + j <= op.order; j++)
        for (int c = 0; c < op.in; c++)
          std::memcpy(alpha + ((size_t)given_place(i, j) * op.in + c) * op.out,
                      from + ((size_t)(by_column ? jet.row_of(j) + i : jet.row_of(i) + j) * cp + c) * op_, sizeof(T) * op.out);
  }
  static void transpose(const T *B, int rows, int cols, T *to, int ld) {
    for (int first = 0; first < rows; first += 16) // a few lines at a time stay in the first cache
      for (int o = 0; o < cols; o++)
        for (int k = first; k < std::min(rows, first + 16); k++) to[(size_t)o * ld + k] = B[(size_t)k * cols + o];
  }

  // With stride 1 the channels are mixed between rows and columns: M_j = sum_i (L_i X) A_ij, then Y = sum_j M_j R_j^T. That filters three maps
  // along the columns instead of six; with a larger stride it would mix pixels that are left out. Backwards likewise, unless the gradient of
  // every single tap of the columns is asked for, which needs the six responses, or M.
  bool mixes_first() const { return op.stride == 1 && alternating; }
  bool mixes_first_back() const { return mixes_first() && !op.g_cols; }
  size_t start_of(int j) const { return (size_t)jet.row_of(j) * cp * op_; } // of A_0j, A_1j, ... among coefficients stacked by column

  // The coefficients as the forward pass multiplies by them: one packed matrix, or one for each j. `spread` runs numbered pieces of work.
  template <class Spread> void pack(const T *alpha, T *stacked, T *panels, const Spread &spread) const {
    if (op.own_taps) return;
    spread(op.order + 1, [&](int j) {
      stack(alpha, stacked, mixes_first(), j);
      if (mixes_first()) pack_panels((op.order + 1 - j) * cp, op_, stacked + start_of(j), op_, panels + start_of(j));
    });
    if (!mixes_first()) pack_panels(K, op_, stacked, op_, panels);
  }

  // Likewise of the backward pass: the transpose of all of them, or for each i those of A_i0, A_i1, ... one below the other.
  template <class Spread> void pack_back(const T *alpha, T *stacked, T *turned, const Spread &spread) const {
    if (op.own_taps) return;
    spread(op.order + 1, [&](int i) {
      stack(alpha, stacked, false, i);
      if (!mixes_first_back()) return;
      for (int j = 0; i + j <= op.order; j++) {
        const size_t from = (size_t)(jet.row_of(i) + j) * cp * op_;
        transpose(stacked + from, cp, op_, turned + from, cp);
      }
      pack_panels((op.order + 1 - i) * op_, cp, turned + start_of(i), cp, stacked + start_of(i));
    });
    if (mixes_first_back()) return;
    transpose(stacked, K, op_, turned, K);
    pack_panels(op_, K, turned, K, stacked);
  }
  static constexpr auto one_by_one = [](int count, const auto &piece) {
    for (int i = 0; i < count; i++) piece(i);
  };

  size_t forward_bytes() const {
    const size_t band = jet.band<T>();
    size_t n = 2 * (size_t)pixels * cp + 4 * cp;
    n += band * jet.width * jet.derivatives() * cp + 2 * (size_t)out_pixels * op_;
    n += mixes_first() ? band * jet.width * jet.derivatives() * op_ : band * jet.out_width() * K;
    n += op.alpha_sample ? 2 * packed : 0;
    return n * sizeof(T) + 64 * 16;
  }

  // The input of an image in our layout: the caller's own memory where it has that layout already.
  const T *input(const T *x, T *space) const {
    if (in_place<T>(op.x_strides, op.in, op.width)) return x;
    gather(x, op.x_strides, op.in, op.height, op.width, space);
    return space;
  }

  // The gradient of the output of an image, likewise.
  T *output_gradient(const T *gy, T *space) const {
    if (in_place<T>(op.gy_strides, op.out, jet.out_width())) return (T *)gy;
    gather(gy, op.gy_strides, op.out, jet.out_height(), jet.out_width(), space);
    return space;
  }

  // What is convolved: S, or X itself where neither norm nor activation changes it.
  T *normalised(const T *X, const Moments<T> &m, T *S) const {
    if (!op.groups && op.activation == IDENTITY) return (T *)X;
    if (op.groups) moments(X, pixels, op.in, op.groups, (const T *)op.gamma, (const T *)op.beta, op.eps, m);
    normalise(op.activation, X, pixels, cp, op.groups ? m.scale : nullptr, m.shift, S);
    return S;
  }

  template <int D> void filtered_rows(int n, const T *S, int first, int count, T *F) const {
    alternating ? fan_rows<T, D>(jet, S, rows(n), first, count, F) : filter_rows<T, D>(jet, S, rows(n), first, count, F);
  }

  // Image n, which lies at x, into y.
  template <int D> void forward(int n, const T *shared, const T *x, T *y) const {
    if (op.own_taps) return forward_own<D>(n, x, y);
    room.reserve(forward_bytes());
    T *own = room.take<T>((size_t)pixels * cp), *S = room.take<T>((size_t)pixels * cp);
    const Moments<T> m{room.take<T>(cp), room.take<T>(cp), room.take<T>(cp), room.take<T>(cp)};
    const int band = jet.band<T>(), wide = jet.out_width();
    T *F = room.take<T>((size_t)band * jet.width * D * cp), *Y = room.take<T>((size_t)out_pixels * op_);
    T *Z = op.along ? room.take<T>((size_t)out_pixels * op_) : nullptr; // the derivative of Y along a direction of the taps
    T *E = room.take<T>(mixes_first() ? (size_t)band * jet.width * D * op_ : (size_t)band * wide * K);
    const T *B = shared;
    if (op.alpha_sample) {
      T *stacked = room.take<T>(packed), *panels = room.take<T>(packed);
      pack(alpha(n), stacked, panels, one_by_one);
      B = panels;
    }
    const T *X = input(x, own);
    S = normalised(X, m, S);
    const bool direct = in_place<T>(op.y_strides, op.out, wide);
    T *z = op.along ? (T *)op.y_along + n * op.y_strides.sample : nullptr;
    if (direct) Y = y, Z = z;
    for (int first = 0; first < jet.out_height(); first += band) {
      const int count = std::min(band, jet.out_height() - first);
      filtered_rows<D>(n, S, first, count, F);
      T *to[2] = {Y + (size_t)first * wide * op_, Z ? Z + (size_t)first * wide * op_ : nullptr};
      const T *taps[2] = {cols(n), op.along ? along(n) : nullptr};
      if (mixes_first()) {
        for (int j = 0; j < D; j++) multiply(count * wide, op_, (D - j) * cp, F, D * cp, B + start_of(j), E + j * op_, D * op_);
        op.along ? sum_columns<T, D, 2>(jet, E, taps, count, to) : sum_columns<T, D, 1>(jet, E, taps, count, to);
      } else
        for (int s = 0; s < (op.along ? 2 : 1); s++) {
          filter_columns<T, D>(jet, F, taps[s], count, E);
          multiply(count * wide, op_, K, E, K, B, to[s], op_);
        }
    }
    finish(n, Y);
    if (direct) return;
    scatter(Y, op.out, jet.out_height(), wide, y, op.y_strides);
    if (op.along) scatter(Z, op.out, jet.out_height(), wide, z, op.y_strides);
  }

  // Bias and t m. The map of m is given channels first, as PyTorch holds it.
  void finish(int n, T *Y) const {
    if (op.bias)
      for (int p = 0; p < out_pixels; p++)
        for (int o = 0; o < op.out; o++) Y[(size_t)p * op_ + o] += ((const T *)op.bias)[o];
    if (op.times) {
      const T t = time(n), *m = (const T *)op.time_map;
      for (int p = 0; p < out_pixels; p++)
        for (int o = 0; o < op.out; o++) Y[(size_t)p * op_ + o] += t * m[(size_t)p * op.out + o];
    }
  }

  // Sums over the images of one part of the batch; parts do not depend on the number of threads, so neither do the results.
  struct Sums {
    T *alpha, *gamma, *beta, *bias, *time_map;
    Vec<T> *rows, *cols;
  };
  size_t sums_size() const {
    const int W = Simd<T>::width;
    return packed + 2 * cp + op_ + (op.g_time_map ? (size_t)out_pixels * op_ : 0) + W * (taps_y + taps_x) + 8 * 16;
  }
  Sums sums(T *at) const {
    auto take = [&](size_t count) {
      T *here = at;
      at += (count + 15) / 16 * 16;
      return here;
    };
    Sums s;
    const int W = Simd<T>::width;
    s.rows = (Vec<T> *)take(W * taps_y), s.cols = (Vec<T> *)take(W * taps_x);
    s.alpha = take(packed), s.gamma = take(cp), s.beta = take(cp), s.bias = take(op_);
    s.time_map = op.g_time_map ? take((size_t)out_pixels * op_) : nullptr;
    return s;
  }

  size_t backward_bytes() const {
    const size_t band = jet.band<T>(), D = jet.derivatives();
    size_t n = 3 * (size_t)pixels * cp + 10 * cp + 2 * (size_t)out_pixels * op_;
    n += (band + jet.out_height()) * jet.width * D * cp + wide_taps_size(D, op.reach_y);
    n += mixes_first_back() ? band * jet.width * D * op_ : 2 * band * jet.out_width() * K;
    n += op.alpha_sample ? 2 * packed : 0;
    return n * sizeof(T) + 64 * 24;
  }

  // Image n, which lies at x, with the gradient of its output at gy; that of x goes to gx, if it is wanted.
  template <int D> void backward(int n, const T *shared, const Sums &s, const T *x, const T *gy, T *gx) const {
    if (op.own_taps) return backward_own<D>(n, s, x, gy, gx);
    room.reserve(backward_bytes());
    T *own = room.take<T>((size_t)pixels * cp), *S = room.take<T>((size_t)pixels * cp), *gS = room.take<T>((size_t)pixels * cp);
    const Moments<T> m{room.take<T>(cp), room.take<T>(cp), room.take<T>(cp), room.take<T>(cp)};
    T *sum_g = room.take<T>(cp), *sum_gx = room.take<T>(cp), *means = room.take<T>(2 * cp), *G = room.take<T>((size_t)out_pixels * op_), *Z = room.take<T>(op.g_along ? (size_t)out_pixels * op_ : 0);
    const int band = jet.band<T>(), wide = jet.out_width();
    T *F = room.take<T>((size_t)band * jet.width * D * cp), *Q = room.take<T>((size_t)jet.out_height() * jet.width * D * cp);
    T *wide_taps = room.take<T>(wide_taps_size(D, op.reach_y));
    T *E = room.take<T>(mixes_first_back() ? 0 : (size_t)band * wide * K); // responses of all basis functions
    T *gE = room.take<T>((size_t)band * wide * (mixes_first_back() ? D * op_ : K)); // their gradient, or that of M
    const T *BT = shared;
    if (op.alpha_sample) {
      T *stacked = room.take<T>(packed), *turned = room.take<T>(packed);
      pack_back(alpha(n), stacked, turned, one_by_one);
      BT = stacked;
    }
    const T *X = input(x, own);
    S = normalised(X, m, S);
    G = output_gradient(gy, G);
    last_terms_backward(n, G, s);
    if (op.g_along) {
      const T *z = (const T *)op.y_along + n * op.y_strides.sample;
      if (!in_place<T>(op.y_strides, op.out, wide)) gather(z, op.y_strides, op.out, jet.out_height(), wide, Z), z = Z;
      ((T *)op.g_along)[n] = (T)dot(G, z, (size_t)out_pixels * op_);
    }
    const bool inward = gx || op.g_gamma || op.g_beta;
    const bool direct = gx && in_place<T>(op.gx_strides, op.in, op.width);
    if (direct) gS = gx;
    for (int first = 0; first < jet.out_height(); first += band) {
      const int count = std::min(band, jet.out_height() - first), M = count * wide;
      const T *g = G + (size_t)first * wide * op_;
      T *q = Q + (size_t)first * jet.width * D * cp;
      if (op.g_alpha || op.g_cols) filtered_rows<D>(n, S, first, count, F);
      if (mixes_first_back()) {
        turn_columns<T, D>(jet, g, cols(n), count, gE);
        if (op.g_alpha)
          for (int j = 0; j < D; j++) add_transposed(M, op_, (D - j) * cp, F, D * cp, gE + j * op_, D * op_, s.alpha + start_of(j), op_);
        if (inward || op.g_rows)
          for (int i = 0; i < D; i++) multiply(M, cp, (D - i) * op_, gE, D * op_, BT + start_of(i), q + i * cp, D * cp);
      } else {
        if (op.g_alpha) {
          filter_columns<T, D>(jet, F, cols(n), count, E);
          add_transposed(M, op_, K, E, K, g, op_, s.alpha, op_);
        }
        if (inward || op.g_rows || op.g_cols) multiply(M, K, op_, g, op_, BT, gE, K);
        if (op.g_cols) column_taps<T, D>(jet, gE, F, count, s.cols);
        if (inward || op.g_rows) spread_columns<T, D>(jet, gE, cols(n), count, q);
      }
      if (op.g_rows) row_taps<T, D>(jet, q, S, first, count, s.rows);
    }
    if (!inward) return;
    if (mixes_first())
      gather_rows<T, D>(jet, Q, rows(n), gS);
    else {
      widen_taps(rows(n), D, op.reach_y, wide_taps);
      spread_rows<T, D>(jet, Q, wide_taps, gS);
    }
    back_to_input(X, S, gS, m, sum_g, sum_gx, means, s, direct ? nullptr : gx);
  }

  // From the gradient of the normalised map, gS, to that of the map itself, in place, and into gx if it lies elsewhere.
  void back_to_input(const T *X, const T *S, T *gS, const Moments<T> &m, T *sum_g, T *sum_gx, T *means, const Sums &s, T *gx) const {
    const bool plain = !op.groups && op.activation == IDENTITY;
    if (!plain) activation_backward(op.activation, X, S, gS, gS, pixels, cp, op.groups ? &m : nullptr, sum_g, sum_gx);
    if (op.groups) {
      for (int c = 0; c < cp; c++) s.beta[c] += sum_g[c], s.gamma[c] += sum_gx[c];
      norm_backward(X, gS, gS, pixels, op.in, op.groups, (const T *)op.gamma, m, sum_g, sum_gx, means);
    }
    if (gx) scatter(gS, op.in, op.height, op.width, gx, op.gx_strides);
  }

  // Both ways where every output channel has its own taps. Memory: what both need, then what only one does.
  size_t own_bytes(bool back) const {
    const size_t D = jet.derivatives(), Z = (size_t)rows_at_once<T>(jet) * op.width * jet.basis() * op_, U = (size_t)jet.out_width() * D * op_;
    size_t n = (back ? 3 : 2) * (size_t)pixels * cp + 10 * cp + (size_t)out_pixels * op_;
    n += back ? 2 * Z + 2 * rows_at_once<T>(jet) * U : Z + op.height * U;
    return n * sizeof(T) + 64 * 16;
  }
  template <int D> void forward_own(int n, const T *x, T *y) const {
    room.reserve(own_bytes(false));
    T *space = room.take<T>((size_t)pixels * cp), *S = room.take<T>((size_t)pixels * cp);
    const Moments<T> m{room.take<T>(cp), room.take<T>(cp), room.take<T>(cp), room.take<T>(cp)};
    const int band = rows_at_once<T>(jet), wide = jet.out_width(), P = jet.basis();
    T *Z = room.take<T>((size_t)band * op.width * P * op_), *U = room.take<T>((size_t)op.height * wide * D * op_);
    T *Y = room.take<T>((size_t)out_pixels * op_);
    const T *X = input(x, space);
    const bool direct = in_place<T>(op.y_strides, op.out, wide);
    if (direct) Y = y;
    S = normalised(X, m, S);
    for (int top = 0; top < op.height; top += band) {
      const int count = std::min(band, op.height - top);
      multiply(count * op.width, P * op_, cp, S + (size_t)top * op.width * cp, cp, own.mix.data(), Z, P * op_);
      own_columns<T, D>(jet, Z, own.cols.data(), count, U + (size_t)top * wide * D * op_);
    }
    own_rows<T, D>(jet, U, own.rows.data(), Y);
    finish(n, Y);
    if (!direct) scatter(Y, op.out, jet.out_height(), wide, y, op.y_strides);
  }
  template <int D> void backward_own(int n, const Sums &s, const T *x, const T *gy, T *gx) const {
    room.reserve(own_bytes(true));
    T *space = room.take<T>((size_t)pixels * cp), *S = room.take<T>((size_t)pixels * cp), *gS = room.take<T>((size_t)pixels * cp);
    const Moments<T> m{room.take<T>(cp), room.take<T>(cp), room.take<T>(cp), room.take<T>(cp)};
    T *sum_g = room.take<T>(cp), *sum_gx = room.take<T>(cp), *means = room.take<T>(2 * cp), *G = room.take<T>((size_t)out_pixels * op_);
    const int band = rows_at_once<T>(jet), wide = jet.out_width(), P = jet.basis();
    T *Z = room.take<T>((size_t)band * op.width * P * op_), *gZ = room.take<T>((size_t)band * op.width * P * op_);
    T *U = room.take<T>((size_t)band * wide * D * op_), *V = room.take<T>((size_t)band * wide * D * op_);
    const T *X = input(x, space);
    S = normalised(X, m, S);
    G = output_gradient(gy, G);
    last_terms_backward(n, G, s);
    const bool inward = gx || op.g_gamma || op.g_beta, direct = gx && in_place<T>(op.gx_strides, op.in, op.width);
    if (direct) gS = gx;
    for (int top = 0; top < op.height; top += band) {
      const int count = std::min(band, op.height - top), M = count * op.width;
      const T *from = S + (size_t)top * op.width * cp;
      if (op.g_rows || op.g_cols) multiply(M, P * op_, cp, from, cp, own.mix.data(), Z, P * op_);
      if (op.g_rows) {
        own_columns<T, D>(jet, Z, own.cols.data(), count, U);
        own_row_taps<T, D>(jet, G, U, top, count, (T *)s.rows);
      }
      own_rows_back<T, D>(jet, G, own.rows.data(), top, count, V);
      if (op.g_cols) own_column_taps<T, D>(jet, V, Z, count, (T *)s.cols);
      if (!inward && !op.g_alpha) continue;
      own_columns_back<T, D>(jet, V, own.cols.data(), count, gZ);
      if (op.g_alpha) add_transposed(M, P * op_, cp, from, cp, gZ, P * op_, s.alpha, P * op_);
      if (inward) multiply(M, cp, P * op_, gZ, P * op_, own.back.data(), gS + (size_t)top * op.width * cp, cp);
    }
    if (inward) back_to_input(X, S, gS, m, sum_g, sum_gx, means, s, direct ? nullptr : gx);
  }

  // Short sums in T, long ones in double.
  static double dot(const T *a, const T *b, size_t count) {
    const int W = Simd<T>::width;
    double total = 0;
    for (size_t i = 0; i < count;) {
      Vec<T> s{};
      for (const size_t stop = std::min(count, i + (size_t)64 * W); i < stop; i += W) s += load(a + i) * load(b + i);
      for (int w = 0; w < W; w++) total += (double)s[w];
    }
    return total;
  }

  void last_terms_backward(int n, const T *G, const Sums &s) const {
    const int W = Simd<T>::width;
    if (op.g_bias)
      for (int p = 0; p < out_pixels; p++)
        for (int o = 0; o < op_; o += W) store(s.bias + o, load(s.bias + o) + load(G + (size_t)p * op_ + o));
    if (op.times && op.g_time_map) {
      const T t = time(n);
      for (size_t i = 0; i < (size_t)out_pixels * op_; i += W) store(s.time_map + i, load(s.time_map + i) + t * load(G + i));
    }
    if (op.times && op.g_t) {
      const T *m = (const T *)op.time_map;
      double total = 0;
      for (int p = 0; p < out_pixels; p++) {
        T line = 0;
        for (int o = 0; o < op.out; o++) line += G[(size_t)p * op_ + o] * m[(size_t)p * op.out + o];
        total += (double)line;
      }
      ((T *)op.g_t)[n] = (T)total;
    }
  }
};

} // namespace CONTINUA_ISA
