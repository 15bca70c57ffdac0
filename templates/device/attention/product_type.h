// GPU vocabulary of decoding: the type in which elements of a cache and of queries are multiplied. Part of a template, which has defined before: Element,
// Cached.
#pragma once

// 8-bit elements are halves in products, and so are the queries and weights they meet.
template <class E, class C> struct ProductOf { using Type = half; };
template <class E> struct ProductOf<E, E> { using Type = E; };
using Product = ProductOf<Element, Cached>::Type;
