// The papers' field, two convolutions and a last norm, of a few images at a time: what lies between stays in the caches. Part of kernels.cpp,
// inside its namespace.

// How many images go through one operator before the next: enough pixels that reading its coefficients costs little.
static int group_of(int batch, int pixels) { return std::clamp(256 / std::max(1, pixels), 1, std::max(1, batch)); }

template <class T> static void field(const ConvField &op, Parallel parallel) {
  const Convolution<T> first(op.first), second(op.second);
  const int batch = op.first.batch, size = group_of(batch, first.out_pixels);
  const size_t middle = (size_t)op.first.out * first.out_pixels, end = (size_t)op.second.out * second.out_pixels; // numbers of one image
  hall.reserve(2 * sizeof(T) * (first.packed + second.packed) + 64 * 4);
  T *stacked = hall.take<T>(first.packed), *panels = hall.take<T>(first.packed);
  T *stacked2 = hall.take<T>(second.packed), *panels2 = hall.take<T>(second.packed);
  each(2, op.first.threads, parallel, [&](int which) {
    const Convolution<T> &conv = which ? second : first;
    conv.pack((const T *)conv.op.alpha, which ? stacked2 : stacked, which ? panels2 : panels, Convolution<T>::one_by_one);
  });
  each((batch + size - 1) / size, op.first.threads, parallel, [&](int group) {
    const int from = group * size, to = std::min(batch, from + size);
    halfway.reserve(sizeof(T) * (size * middle + end) + 64 * 2);
    T *between = halfway.take<T>(size * middle), *before_norm = halfway.take<T>(end);
    auto middle_of = [&](int n) { return op.first.y ? sample<T>(op.first.y, op.first.y_strides, n) : between + (n - from) * middle; };
    for (int n = from; n < to; n++) forward_one(first, n, panels, sample<T>(op.first.x, op.first.x_strides, n), middle_of(n));
    for (int n = from; n < to; n++) {
      T *y = op.second.y ? sample<T>(op.second.y, op.second.y_strides, n) : before_norm;
      forward_one(second, n, panels2, (const T *)middle_of(n), y);
      norm_one(op.last, (const T *)y, sample<T>(op.last.y, op.last.y_strides, n));
    }
  });
}

// Both inner maps are given, as the forward pass made them.
template <class T> static void field_vjp(const ConvField &op, Parallel parallel) {
  const Convolution<T> first(op.first), second(op.second);
  const int batch = op.first.batch, parts = parts_of(batch, first.out_pixels), cp = padded<T>(op.last.channels);
  const size_t middle = (size_t)op.first.out * first.out_pixels, end = (size_t)op.second.out * second.out_pixels;
  auto whole = [](size_t count) { return (count + 15) / 16 * 16; };
  const size_t of_first = whole(first.sums_size()), of_second = whole(second.sums_size()), size = of_first + of_second + whole(2 * cp);
  hall.reserve(sizeof(T) * (2 * (first.packed + second.packed) + size * parts) + 64 * 5);
  T *turned = hall.take<T>(first.packed), *space = hall.take<T>(first.packed);
  T *turned2 = hall.take<T>(second.packed), *space2 = hall.take<T>(second.packed), *all = hall.take<T>(size * parts);
  each(2, op.first.threads, parallel, [&](int which) {
    const Convolution<T> &conv = which ? second : first;
    conv.pack_back((const T *)conv.op.alpha, which ? turned2 : turned, which ? space2 : space, Convolution<T>::one_by_one);
  });
  each(parts, op.first.threads, parallel, [&](int part) {
    T *at = all + size * part, *norm = at + of_first + of_second;
    std::memset(at, 0, sizeof(T) * size);
    const typename Convolution<T>::Sums sums = first.sums(at), sums2 = second.sums(at + of_first);
    const int from = begin_of(part, parts, batch), to = begin_of(part + 1, parts, batch);
    halfway.reserve(sizeof(T) * ((to - from) * middle + end) + 64 * 2);
    T *g_middle = halfway.take<T>((to - from) * middle), *g_end = halfway.take<T>(end);
    for (int n = from; n < to; n++) {
      norm_vjp_one(op.last, sample<T>(op.last.x, op.last.x_strides, n), sample<T>(op.last.gy, op.last.gy_strides, n), g_end, norm, norm + cp);
      backward_one(second, n, turned2, sums2, sample<T>(op.second.x, op.second.x_strides, n), (const T *)g_end, g_middle + (n - from) * middle);
    }
    for (int n = from; n < to; n++)
      backward_one(first, n, turned, sums, sample<T>(op.first.x, op.first.x_strides, n), (const T *)g_middle + (n - from) * middle,
                   sample<T>(op.first.gx, op.first.gx_strides, n));
  });
  collect(first, all, size, parts, parallel);
  collect(second, all + of_first, size, parts, parallel);
  collect_norm(op.last, all + of_first + of_second, size, parts);
}
