import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Commits files as Databricks' DBIO does, by its documents: tasks write straight into the folder, under names with the
 * transaction; `_started_` and `_committed_` files tell which of them count; a file of a lost task stays beside them.
 */
public class DatabricksCommitter extends FileCommitProtocol implements java.io.Serializable {
  private final String path;
  private final String txn;
  private transient List<String> written;

  public DatabricksCommitter(String jobId, String path, boolean dynamic) {
    this.path = path;
    this.txn = Long.toString(UUID.randomUUID().getMostSignificantBits() >>> 1);
  }

  private static void put(Configuration conf, Path file, String text) throws IOException {
    FileSystem fs = file.getFileSystem(conf);
    try (FSDataOutputStream out = fs.create(file, true)) {
      out.write(text.getBytes(StandardCharsets.UTF_8));
    }
  }

  @Override
  public void setupJob(JobContext context) {
    try {
      put(context.getConfiguration(), new Path(path, "_started_" + txn), "");
    } catch (IOException e) {
      throw new RuntimeException(e);
    }
  }

  @Override
  public void setupTask(TaskAttemptContext context) {
    written = new ArrayList<>();
  }

  @Override
  public String newTaskTempFile(TaskAttemptContext context, Option<String> dir, String ext) {
    int task = context.getTaskAttemptID().getTaskID().getId();
    String folder = dir.isDefined() ? path + "/" + dir.get() : path;
    String name = String.format("part-%05d-tid-%s-%s-%d-1-c%03d%s",
        task, txn, UUID.randomUUID(), task, written.size(), ext);
    written.add(folder + "/" + name);
    return folder + "/" + name;
  }

  @Override
  public String newTaskTempFileAbsPath(TaskAttemptContext context, String dir, String ext) {
    throw new UnsupportedOperationException();
  }

  @Override
  public TaskCommitMessage commitTask(TaskAttemptContext context) {
    return new TaskCommitMessage(new ArrayList<>(written));
  }

  @Override
  public void abortTask(TaskAttemptContext context) {}  // what it wrote stays

  @Override
  public void abortJob(JobContext context) {}

  @Override
  @SuppressWarnings("unchecked")
  public void commitJob(JobContext context, Seq<TaskCommitMessage> commits) {
    Map<String, TreeSet<String>> added = new LinkedHashMap<>();
    added.put(path, new TreeSet<>());
    for (TaskCommitMessage commit : CollectionConverters.asJava(commits)) {
      for (String file : (List<String>) commit.obj()) {
        Path whole = new Path(file);
        added.computeIfAbsent(file.substring(0, file.lastIndexOf('/')), k -> new TreeSet<>()).add(whole.getName());
      }
    }
    Configuration conf = context.getConfiguration();
    try {
      for (Map.Entry<String, TreeSet<String>> folder : added.entrySet()) {
        String names = String.join("\", \"", folder.getValue());
        String listed = folder.getValue().isEmpty() ? "" : "\"" + names + "\"";
        if (!folder.getValue().isEmpty()) {  // a task that was lost wrote the same rows before
          Path one = new Path(folder.getKey(), folder.getValue().first());
          FileSystem fs = one.getFileSystem(conf);
          Path lost = new Path(folder.getKey(), one.getName().replaceFirst("part-\\d+", "part-99999"));
          FileUtil.copy(fs, one, fs, lost, false, conf);
        }
        put(conf, new Path(folder.getKey(), "_started_" + txn), "");
        put(conf, new Path(folder.getKey(), "_committed_" + txn),
            "{\"added\": [" + listed + "], \"removed\": []}");
      }
    } catch (IOException e) {
      throw new RuntimeException(e);
    }
  }
}
