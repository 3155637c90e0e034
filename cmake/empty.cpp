// libmuster.so is muster_static linked whole; CMake wants one source file.
