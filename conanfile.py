# SPDX-License-Identifier: Apache-2.0
"""Conan's recipe of the library and the program, with the libraries of the system: `conan create .`"""

import re
from pathlib import Path

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.system.package_manager import Apt


class Ebb(ConanFile):
    name = "ebb"
    description = "Backpropagation through time in the memory you have"
    license = "Apache-2.0"
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"program": [True, False], "mpi": [True, False]}
    default_options = {"program": True, "mpi": False}
    exports_sources = "CMakeLists.txt", "LICENSE", "NOTICE", "cmake/*", "docs/dependencies.md", "ebb/*"

    def set_version(self):
        project = (Path(self.recipe_folder) / "CMakeLists.txt").read_text()
        self.version = re.search(r"project\(ebb VERSION ([\d.]+)", project)[1]

    def layout(self):
        cmake_layout(self)

    def system_requirements(self):
        """Of Debian and Ubuntu; elsewhere they must be there. Programs that link the library need them, too."""
        names = ["nlohmann-json3-dev", "libhwy-dev", "libzstd-dev", "liblz4-dev", "zlib1g-dev", "liburing-dev"]
        if self.options.program:
            names.append("libcli11-dev")
        if self.options.mpi:
            names.append("libopenmpi-dev")
        Apt(self).install(names)

    def generate(self):
        chain = CMakeToolchain(self)
        chain.user_presets_path = False
        wanted = {"CLI": bool(self.options.program), "MPI": bool(self.options.mpi)}
        for name, value in {**wanted, "TESTS": False, "BENCH": False, "EXPLORER": False}.items():
            chain.cache_variables[f"EBB_{name}"] = "ON" if value else "OFF"
        chain.cache_variables.update(CMAKE_UNITY_BUILD="ON", CMAKE_UNITY_BUILD_BATCH_SIZE="0")  # a third of the time
        chain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        """What CMake finds is the package's own ebbConfig.cmake."""
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/ebb"]
        self.cpp_info.libs = ["ebb_train", "ebb_data", "ebb"]
