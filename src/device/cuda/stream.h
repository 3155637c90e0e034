// Streams and events of the runtime.
#pragma once

#include <utility>

#include "device/cuda/runtime.h"

namespace muster::cuda {

// Whether calls on the stream are being recorded into a graph. Throws for a stream that is none.
bool is_capturing(StreamHandle stream);

// A stream that doesn't wait for the default stream.
class Stream {
 public:
  explicit Stream(int device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  StreamHandle handle() const { return handle_; }
  int device() const { return device_; }
  bool idle() const;
  void synchronize() const;

 private:
  int device_;
  StreamHandle handle_ = nullptr;
};

// A point in a stream; without a clock.
class Event {
 public:
  explicit Event(int device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  // What `stream` has been given until now.
  void record(StreamHandle stream);
  // What `stream` is given from now on comes after it. Streams of other devices may wait, too.
  void hold_back(StreamHandle stream) const;
  bool reached() const;
  void synchronize() const;

 private:
  int device_;
  EventHandle handle_ = nullptr;
};

}  // namespace muster::cuda
