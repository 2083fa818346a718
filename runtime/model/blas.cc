#include "runtime/model/blas.h"

#include <string_view>

// Declared here because the packages with the headers bring 60 MB more.
extern "C" {
void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
char* openblas_get_config();
char* openblas_get_corename();
void openblas_set_num_threads(int n);
}

namespace trainyard::runtime {
namespace {

constexpr int kRowMajor = 101;
constexpr int kAsStored = 111;
constexpr int kTransposed = 112;

int orderOf(const Matrix& m) {
  return m.transposed ? kTransposed : kAsStored;
}

}  // namespace

void blasMultiply(const Matrix& a, const Matrix& b, Into into, float* out) {
  cblas_sgemm(kRowMajor, orderOf(a), orderOf(b), static_cast<int>(a.height()),
              static_cast<int>(b.width()), static_cast<int>(a.width()), 1.0f, a.data,
              static_cast<int>(a.columns), b.data, static_cast<int>(b.columns),
              into == Into::kAdd ? 1.0f : 0.0f, out, static_cast<int>(b.width()));
}

// "OpenBLAS 0.3.21 NO_AFFINITY USE_OPENMP Zen MAX_THREADS=64" -> "OpenBLAS 0.3.21"
std::string blasName() {
  const std::string_view text = openblas_get_config();
  const std::size_t end = text.find(' ', text.find(' ') + 1);
  return std::string(text.substr(0, end));
}

bool blasKnowsProcessor() {
  const std::string_view name = openblas_get_corename();
  for (const std::string_view known : {"Haswell", "Zen", "SkylakeX", "Cooperlake"})
    if (name == known) return true;
  return false;
}

void setBlasThreads(int n) {
  openblas_set_num_threads(n);
}

}  // namespace trainyard::runtime
