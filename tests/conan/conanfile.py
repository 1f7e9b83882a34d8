# SPDX-License-Identifier: Apache-2.0
"""`conan create . --test-folder tests/conan` builds tests/consumer against the package, and runs it and the program."""

import os

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout


class Consumer(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    test_type = "explicit"

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires(self.tested_reference_str)

    def generate(self):
        chain = CMakeToolchain(self)
        chain.user_presets_path = False
        chain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder="../consumer")
        cmake.build()

    def test(self):
        package = self.dependencies["ebb"]
        self.run(os.path.join(self.build_folder, "consumer"))
        if package.options.program:
            self.run(os.path.join(package.package_folder, "bin", "ebb") + " --version")
