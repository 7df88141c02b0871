"""Files wherever Hadoop can reach them, through Spark's JVM."""

from typing import Any

from pyspark.sql import SparkSession


class Files:
    """Reads and writes files. Everything blocks; Py4JJavaError says what Hadoop has against it."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop's file systems
        self._settings: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - the same

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._settings), place

    def read(self, path: str) -> bytes | None:
        """What a file holds; None if there is none."""
        system, place = self._at(path)
        if not system.exists(place):
            return None
        stream = system.open(place)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, path: str, data: bytes) -> None:
        """Write a file, whether or not there is one."""
        system, place = self._at(path)
        stream = system.create(place, True)  # noqa: FBT003 - Java has no names for arguments
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()

    def names(self, path: str) -> list[str]:
        """What is in a folder; nothing if there is none."""
        system, place = self._at(path)
        return [each.getPath().getName() for each in system.listStatus(place)] if system.exists(place) else []

    def delete(self, path: str) -> None:
        """Delete a folder with what is in it."""
        system, place = self._at(path)
        system.delete(place, True)  # noqa: FBT003 - the same

    def copy(self, source: str, target: str) -> None:
        """Copy a folder to where there is none; what an interrupted copy left there is deleted first."""
        system, place = self._at(target)
        system.delete(place, True)  # noqa: FBT003 - the same
        if self._at(source)[0].exists(self._at(source)[1]):
            copy = self._jvm.org.apache.hadoop.fs.FileUtil.copy
            copy(*self._at(source), system, place, False, self._settings)  # noqa: FBT003 - the same
