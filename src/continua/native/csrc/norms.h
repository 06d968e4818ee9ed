// act(norm(x)) as an operator of its own. Part of kernels.cpp, inside its namespace.

template <class T> static const T *gathered(const T *at, const MapStrides &s, const NormAct &op, T *own) {
  if (in_place<T>(s, op.channels, op.width)) return at;
  gather(at, s, op.channels, op.height, op.width, own);
  return own;
}

// The image at x into y.
template <class T> static void norm_one(const NormAct &op, const T *x, T *y) {
  const int cp = padded<T>(op.channels), pixels = op.height * op.width;
  room.reserve(((size_t)2 * pixels * cp + 4 * cp) * sizeof(T) + 64 * 8);
  T *own = room.take<T>((size_t)pixels * cp), *Y = room.take<T>((size_t)pixels * cp);
  const Moments<T> m{room.take<T>(cp), room.take<T>(cp), room.take<T>(cp), room.take<T>(cp)};
  const T *X = gathered<T>(x, op.x_strides, op, own);
  const bool direct = in_place<T>(op.y_strides, op.channels, op.width);
  if (direct) Y = y;
  moments(X, pixels, op.channels, op.groups, (const T *)op.gamma, (const T *)op.beta, op.eps, m);
  normalise(op.activation, X, pixels, cp, m.scale, m.shift, Y);
  if (!direct) scatter(Y, op.channels, op.height, op.width, y, op.y_strides);
}

// The image at x, with the gradient of its output at gy; that of x goes to gx, if it is wanted, those of gamma and beta are added.
template <class T> static void norm_vjp_one(const NormAct &op, const T *x, const T *gy, T *gx, T *g_gamma, T *g_beta) {
  const int cp = padded<T>(op.channels), pixels = op.height * op.width;
  room.reserve(((size_t)3 * pixels * cp + 8 * cp) * sizeof(T) + 64 * 12);
  T *own = room.take<T>((size_t)pixels * cp), *g = room.take<T>((size_t)pixels * cp), *S = room.take<T>((size_t)pixels * cp);
  const Moments<T> m{room.take<T>(cp), room.take<T>(cp), room.take<T>(cp), room.take<T>(cp)};
  T *sum_g = room.take<T>(cp), *sum_gx = room.take<T>(cp), *means = room.take<T>(2 * cp);
  const T *X = gathered<T>(x, op.x_strides, op, own), *G = gathered<T>(gy, op.gy_strides, op, g);
  const bool direct = gx && in_place<T>(op.gx_strides, op.channels, op.width);
  if (direct) g = gx;
  moments(X, pixels, op.channels, op.groups, (const T *)op.gamma, (const T *)op.beta, op.eps, m);
  if (op.activation == RELU || op.activation == CELU) normalise(op.activation, X, pixels, cp, m.scale, m.shift, S); // their slopes follow from it
  activation_backward(op.activation, X, S, G, g, pixels, cp, &m, sum_g, sum_gx);
  for (int c = 0; c < cp; c++) g_beta[c] += sum_g[c], g_gamma[c] += sum_gx[c];
  if (!gx) return;
  norm_backward(X, op.activation == IDENTITY ? G : g, g, pixels, op.channels, op.groups, (const T *)op.gamma, m, sum_g, sum_gx, means);
  if (!direct) scatter(g, op.channels, op.height, op.width, gx, op.gx_strides);
}

// Sums of g_gamma and g_beta of all parts, `size` apart, into the caller's tensors.
template <class T> static void collect_norm(const NormAct &op, const T *sums, size_t size, int parts) {
  const int cp = padded<T>(op.channels);
  for (int c = 0; c < op.channels; c++) {
    T a = 0, b = 0;
    for (int part = 0; part < parts; part++) a += sums[size * part + c], b += sums[size * part + cp + c];
    if (op.g_gamma) ((T *)op.g_gamma)[c] = a;
    if (op.g_beta) ((T *)op.g_beta)[c] = b;
  }
}

template <class T> static void norm_act(const NormAct &op, Parallel parallel) {
  each(op.batch, op.threads, parallel, [&](int n) { norm_one(op, sample<T>(op.x, op.x_strides, n), sample<T>(op.y, op.y_strides, n)); });
}

template <class T> static void norm_act_vjp(const NormAct &op, Parallel parallel) {
  const int cp = padded<T>(op.channels), parts = parts_of(op.batch, op.height * op.width);
  hall.reserve(sizeof(T) * (size_t)parts * 2 * cp + 64);
  T *sums = hall.take<T>((size_t)parts * 2 * cp);
  each(parts, op.threads, parallel, [&](int part) {
    T *g_gamma = sums + (size_t)part * 2 * cp;
    std::memset(g_gamma, 0, sizeof(T) * 2 * cp);
    for (int n = begin_of(part, parts, op.batch); n < begin_of(part + 1, parts, op.batch); n++)
      norm_vjp_one(op, sample<T>(op.x, op.x_strides, n), sample<T>(op.gy, op.gy_strides, n), sample<T>(op.gx, op.gx_strides, n), g_gamma, g_gamma + cp);
  });
  collect_norm(op, sums, (size_t)2 * cp, parts);
}
