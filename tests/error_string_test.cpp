// The sentences that programs written for NCCL look for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "muster/types.h"

namespace muster {
namespace {

using testing::HasSubstr;

TEST(ErrorString, HasWhatProgramsLookFor) {
  const std::map<Result, const char*> words = {
      {Result::success, "no error"},
      {Result::unhandled_device_error, "unhandled cuda error"},
      {Result::system_error, "unhandled system error"},
      {Result::internal_error, "internal error"},
      {Result::invalid_argument, "invalid argument"},
      {Result::invalid_usage, "invalid usage"},
      {Result::remote_error, "remote process exited or there was a network error"},
      {Result::in_progress, "operation in progress"},
      {Result::timeout, "timeout"},
  };
  for (const auto& [result, text] : words) EXPECT_THAT(error_string(result), HasSubstr(text));
  for (const Result r : {Result::unhandled_device_error, Result::system_error}) EXPECT_THAT(error_string(r), HasSubstr("run with NCCL_DEBUG=INFO"));
  for (const Result r : {Result::invalid_argument, Result::invalid_usage}) EXPECT_THAT(error_string(r), HasSubstr("run with NCCL_DEBUG=WARN"));
  EXPECT_STREQ(error_string(Result::success), "no error");
}

TEST(ErrorString, IsNeverNullNorAmbiguous) {
  for (int i = -3; i < 20; ++i) {
    ASSERT_NE(error_string(static_cast<Result>(i)), nullptr);
    if (i < 0 || i > 8)
      EXPECT_STREQ(error_string(static_cast<Result>(i)), "unknown result code");
    else
      for (int k = 0; k < i; ++k) EXPECT_STRNE(error_string(static_cast<Result>(i)), error_string(static_cast<Result>(k)));
  }
}

}  // namespace
}  // namespace muster
