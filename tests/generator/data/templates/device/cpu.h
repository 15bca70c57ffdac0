// The least that a CPU image needs.
typedef __INT64_TYPE__ int64_t;
typedef __UINT16_TYPE__ uint16_t;
struct bfloat16 { uint16_t bits; };
struct Group {
  int64_t x, y, z;
  int64_t grid_x, grid_y, grid_z;
  void* shared;
};
struct View {
  void* data;
  int64_t rank;
  int64_t shape[8];
  int64_t strides[8];
};
