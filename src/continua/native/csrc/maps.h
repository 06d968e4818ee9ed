// Feature maps in and out of the kernels' own layout, (height, width, channels padded to whole vectors); norm and activation on it.
#pragma once
#include "api.h"
#include "simd.h"
#include <algorithm>
#include <cmath>

namespace CONTINUA_ISA {

// The map of one sample, channels first or last or anything between, as lines of whole vectors; zeros fill up the last vector.
template <class T> static void gather(const T *x, const MapStrides &s, int channels, int height, int width, T *to) {
  const int cp = padded<T>(channels);
  for (int y = 0; y < height; y++)
    for (int i = 0; i < width; i++) {
      const T *from = x + y * s.row + i * s.column;
      T *at = to + ((size_t)y * width + i) * cp;
      if (s.channel == 1)
        std::memcpy(at, from, sizeof(T) * channels);
      else
        for (int c = 0; c < channels; c++) at[c] = from[c * s.channel];
      for (int c = channels; c < cp; c++) at[c] = 0;
    }
}

template <class T> static void scatter(const T *from, int channels, int height, int width, T *x, const MapStrides &s) {
  const int cp = padded<T>(channels);
  if (s.channel == 1) {
    for (int y = 0; y < height; y++)
      for (int i = 0; i < width; i++)
        std::memcpy(x + y * s.row + i * s.column, from + ((size_t)y * width + i) * cp, sizeof(T) * channels);
    return;
  }
  for (int c0 = 0; c0 < channels; c0 += 16) // a few channels at a time: their lines stay in the cache
    for (int y = 0; y < height; y++)
      for (int i = 0; i < width; i++) {
        const T *at = from + ((size_t)y * width + i) * cp;
        T *to = x + y * s.row + i * s.column;
        for (int c = c0; c < std::min(channels, c0 + 16); c++) to[c * s.channel] = at[c];
      }
}

template <class T> static bool in_place(const MapStrides &s, int channels, int width) {
  return s.channel == 1 && channels % Simd<T>::width == 0 && s.column == channels && s.row == (int64_t)width * channels;
}

// scale and shift of each channel with norm(x) = scale x + shift; mean and 1/deviation of each channel's group.
template <class T> struct Moments {
  T *mean, *inverse, *scale, *shift;
};

// Sums and sums of squares of the differences from the first pixel, of a few vectors of channels: no cancellation where a map is far from zero.
template <class T, int B> static inline void channel_sums(const T *X, int pixels, int cp, T *sums, T *squares) {
  const int W = Simd<T>::width;
  Vec<T> origin[B], s[B], q[B];
  for (int b = 0; b < B; b++) origin[b] = load(X + W * b), s[b] = q[b] = Vec<T>{};
  for (int p = 0; p < pixels; p++)
    for (int b = 0; b < B; b++) {
      const Vec<T> a = load(X + (size_t)p * cp + W * b) - origin[b];
      s[b] += a, q[b] += a * a;
    }
  for (int b = 0; b < B; b++) store(sums + W * b, s[b]), store(squares + W * b, q[b]);
}

template <class T>
static void moments(const T *X, int pixels, int channels, int groups, const T *gamma, const T *beta, double eps, const Moments<T> &m) {
  const int W = Simd<T>::width, cp = padded<T>(channels), size = channels / groups;
  int v = 0;
  for (; v + 4 * W <= cp; v += 4 * W) channel_sums<T, 4>(X + v, pixels, cp, m.mean + v, m.inverse + v);
  for (; v + 2 * W <= cp; v += 2 * W) channel_sums<T, 2>(X + v, pixels, cp, m.mean + v, m.inverse + v);
  for (; v < cp; v += W) channel_sums<T, 1>(X + v, pixels, cp, m.mean + v, m.inverse + v);
  for (int g = 0; g < groups; g++) {
    double total = 0, square = 0;
    for (int c = g * size; c < (g + 1) * size; c++) total += (double)m.mean[c] / pixels + (double)X[c];
    const double mean = total / size;
    for (int c = g * size; c < (g + 1) * size; c++) {
      const double own = (double)m.mean[c] / pixels, off = own + (double)X[c] - mean;
      square += ((double)m.inverse[c] - pixels * own * own) + pixels * off * off;
    }
    const double inverse = 1.0 / std::sqrt(std::max(0.0, square) / ((double)pixels * size) + eps);
    for (int c = g * size; c < (g + 1) * size; c++) {
      m.mean[c] = (T)mean, m.inverse[c] = (T)inverse;
      m.scale[c] = (T)(inverse * (gamma ? (double)gamma[c] : 1.0));
      m.shift[c] = (T)((beta ? (double)beta[c] : 0.0) - mean * inverse * (gamma ? (double)gamma[c] : 1.0));
    }
  }
  for (int c = channels; c < cp; c++) m.mean[c] = m.inverse[c] = m.scale[c] = m.shift[c] = 0;
}

template <class T> static inline T activate(int kind, T u) {
  switch (kind) {
  case RELU: return u > 0 ? u : T(0);
  case CELU: return u > 0 ? u : std::expm1(u);
  case GELU: return T(0.5) * u * (1 + std::erf(u * T(0.70710678118654752440)));
  case SILU: return u / (1 + std::exp(-u));
  case SOFTPLUS: return u > 20 ? u : std::log1p(std::exp(u)); // linear above 20, as PyTorch's
  case TANH: return std::tanh(u);
  default: return u;
  }
}
template <class T> static inline T slope(int kind, T u) {
  switch (kind) {
  case RELU: return u > 0 ? T(1) : T(0);
  case CELU: return u > 0 ? T(1) : std::exp(u);
  case GELU: return T(0.5) * (1 + std::erf(u * T(0.70710678118654752440))) + u * std::exp(T(-0.5) * u * u) * T(0.39894228040143267794);
  case SILU: {
    const T s = 1 / (1 + std::exp(-u));
    return s * (1 + u * (1 - s));
  }
  case SOFTPLUS: return u > 20 ? T(1) : 1 / (1 + std::exp(-u));
  case TANH: {
    const T y = std::tanh(u);
    return 1 - y * y;
  }
  default: return T(1);
  }
}

// S = act(scale X + shift); scale null: act(X). Padding channels stay zero where act(0) = 0; where it does not they are multiplied by zero coefficients.
template <class T> static void normalise(int kind, const T *X, int pixels, int cp, const T *scale, const T *shift, T *S) {
  const int W = Simd<T>::width;
  for (int p = 0; p < pixels; p++)
    for (int v = 0; v < cp; v += W) {
      Vec<T> u = load(X + (size_t)p * cp + v);
      if (scale) u = u * load(scale + v) + load(shift + v);
      if (kind == RELU)
        u = u > 0 ? u : Vec<T>{};
      else if (kind == CELU)
        u = u > 0 ? u : expm1_negative(u > 0 ? Vec<T>{} : u);
      else if (kind != IDENTITY)
        for (int i = 0; i < W; i++) u[i] = activate<T>(kind, u[i]);
      store(S + (size_t)p * cp + v, u);
    }
}

// g = gradient of u, of that of act(u) (not written where they are the same), and per channel sums of g and g (x - mean) / deviation. S = act(u).
// g may be `from` itself.
template <class T>
static void activation_backward(int kind, const T *X, const T *S, const T *from, T *g, int pixels, int cp, const Moments<T> *m, T *sum_g, T *sum_gx) {
  const int W = Simd<T>::width;
  for (int v = 0; v < cp; v += W) {
    const Vec<T> mean = m ? load(m->mean + v) : Vec<T>{}, inverse = m ? load(m->inverse + v) : Vec<T>{};
    const Vec<T> scale = m ? load(m->scale + v) : splat(T(1)), shift = m ? load(m->shift + v) : Vec<T>{};
    Vec<T> a{}, b{};
    for (int p = 0; p < pixels; p++) {
      const size_t at = (size_t)p * cp + v;
      Vec<T> d = load(from + at);
      const Vec<T> x = load(X + at);
      if (kind == RELU)
        d = load(S + at) > 0 ? d : Vec<T>{};
      else if (kind == CELU) {
        const Vec<T> s = load(S + at);
        d = s > 0 ? d : d * (s + T(1)); // exp(u) = act(u) + 1 where u <= 0
      } else if (kind != IDENTITY) {
        const Vec<T> u = x * scale + shift;
        for (int i = 0; i < W; i++) d[i] *= slope<T>(kind, u[i]);
      }
      if (kind != IDENTITY) store(g + at, d);
      a += d;
      b += d * ((x - mean) * inverse);
    }
    if (m) store(sum_g + v, a), store(sum_gx + v, b);
  }
}

// g = gradient of x, of that of norm(x) and the channel sums that activation_backward made. g may be `from` itself.
template <class T>
static void norm_backward(const T *X, const T *from, T *g, int pixels, int channels, int groups, const T *gamma, const Moments<T> &m, const T *sum_g,
                          const T *sum_gx, T *room) {
  const int W = Simd<T>::width, cp = padded<T>(channels), size = channels / groups;
  T *mean_g = room, *mean_gx = room + cp;
  for (int c = 0; c < cp; c++) mean_g[c] = mean_gx[c] = 0;
  for (int q = 0; q < groups; q++) {
    double a = 0, b = 0;
    for (int c = q * size; c < (q + 1) * size; c++) {
      const double w = gamma ? (double)gamma[c] : 1.0;
      a += w * (double)sum_g[c], b += w * (double)sum_gx[c];
    }
    for (int c = q * size; c < (q + 1) * size; c++)
      mean_g[c] = (T)(a * (double)m.inverse[c] / ((double)pixels * size)), mean_gx[c] = (T)(b * (double)m.inverse[c] / ((double)pixels * size));
  }
  for (int p = 0; p < pixels; p++)
    for (int v = 0; v < cp; v += W) {
      const size_t at = (size_t)p * cp + v;
      const Vec<T> hat = (load(X + at) - load(m.mean + v)) * load(m.inverse + v);
      store(g + at, load(m.scale + v) * load(from + at) - load(mean_g + v) - hat * load(mean_gx + v));
    }
}

} // namespace CONTINUA_ISA
