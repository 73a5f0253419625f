// Decides what becomes of a record, and how much of its key is written.
//
// LevelDB's two rules of dropping:
//   shadowed   an older version of the same user key, when a newer one is visible to the oldest snapshot already
//   vanished   a deletion visible to the oldest snapshot, when nothing deeper can hold the key (a setting of the job)
// A record that comes before its predecessor, or is of a kind we do not know, is an error of the input it came from.
// The key's words are compared as they pass: with the last key seen (for the rules) and with the last key written (for
// the shared prefix). User keys alone share: trailers are always written whole.
// The sizes decide where restarts and blocks begin, exactly as in LevelDB's block builder.
module cip_record_filter (
    input  logic                       clk_i,
    input  logic                       rst_i,
    input  cip_pkg::record_settings_t  settings_i,
    // a record's key (merger)
    output logic                       record_ready_o,
    input  logic                       record_begin_i,
    input  cip_pkg::record_t           record_i,
    input  logic                       finished_i,
    // keys to be written, for the encoder and the index
    input  cip_pkg::slot_addr_t        key_addr_i,
    output cip_pkg::word_t             key_bytes_o,
    input  cip_pkg::slot_addr_t        index_addr_i,
    output cip_pkg::word_t             index_bytes_o,
    input  logic                       index_busy_i,
    // what to do, for the encoder
    output logic                       command_valid_o,
    input  logic                       command_ready_i,
    output cip_pkg::command_t          command_o,
    // counters and errors
    output logic                       shadowed_o,
    output logic                       vanished_o,
    output logic                       written_o,
    output logic                       error_valid_o,
    output cip_pkg::error_t            error_o
);
  typedef enum logic [2:0] {StIdle, StKey, StJudge, StRule, StShare, StSize, StFit, StGive} state_e;
  state_e state_q, state_d;

  // The last key seen, and two slots of keys to write: the last one written and the one at hand. The slots are kept
  // three times, for three readers, without the counts.
  logic [cip_pkg::KeyWordWidth-1:0] seen[cip_pkg::SlotWords];
  logic [cip_pkg::WordWidth-1:0] keys[2*cip_pkg::SlotWords];
  logic [cip_pkg::WordWidth-1:0] keys_encoder[2*cip_pkg::SlotWords];
  logic [cip_pkg::WordWidth-1:0] keys_index[2*cip_pkg::SlotWords];
  logic last_slot_q, seen_any_q, shadow_q;
  cip_pkg::key_index_t index_q;
  cip_pkg::key_word_t word, seen_word;
  cip_pkg::word_t last_bytes;

  assign word          = record_i.word;
  assign seen_word     = seen[index_q];
  assign last_bytes    = keys[{last_slot_q, index_q}];
  assign key_bytes_o   = keys_encoder[key_addr_i];
  assign index_bytes_o = keys_index[index_addr_i];
  always_ff @(posedge clk_i) begin
    if (record_i.word_valid) begin
      seen[index_q]                         <= word;
      keys[{!last_slot_q, index_q}]         <= word.bytes;
      keys_encoder[{!last_slot_q, index_q}] <= word.bytes;
      keys_index[{!last_slot_q, index_q}]   <= word.bytes;
    end
  end

  // ---- A step behind the words: how they compare.
  logic late_valid_q, late_trailer_q, late_equal_q, late_less_q;
  logic [cip_pkg::WordBytes-1:0] late_bytes_q;  // equal ones, in the order of the key
  cip_pkg::lane_count_t late_count_q;
  cip_pkg::trailer_t trailer_q;
  cip_pkg::word_t word_lanes, last_lanes;
  assign word_lanes = cip_pkg::reversed(word.bytes);
  assign last_lanes = cip_pkg::reversed(last_bytes);
  always_ff @(posedge clk_i) begin
    late_valid_q   <= !rst_i && record_i.word_valid;
    late_trailer_q <= record_i.is_trailer;
    late_equal_q   <= word == seen_word;
    late_less_q    <= word < seen_word;
    late_count_q   <= word.count;
    for (int j = 0; j < cip_pkg::WordBytes; j++) late_bytes_q[j] <= word_lanes[8*j+:8] == last_lanes[8*j+:8];
    if (record_i.word_valid) trailer_q <= ~word.bytes;
  end

  // ---- Two steps behind: gathered over the key.
  logic same_so_far_q, same_user_q, disorder_q, sharing_q;
  cip_pkg::user_length_t prefix_q, user_length_q, last_length_q, shared_q;
  cip_pkg::lane_count_t run;
  always_comb begin
    run = 4'd8;
    for (int j = cip_pkg::WordBytes - 1; j >= 0; j--) if (!late_bytes_q[j]) run = cip_pkg::LaneCountWidth'(j);
  end
  always_ff @(posedge clk_i) begin
    if (record_begin_i) begin
      same_so_far_q <= seen_any_q;
      disorder_q    <= 1'b0;
      sharing_q     <= 1'b1;
      prefix_q      <= '0;
      user_length_q <= '0;
    end else if (late_valid_q) begin
      same_so_far_q <= same_so_far_q && late_equal_q;
      if (same_so_far_q && late_less_q) disorder_q <= 1'b1;
      if (late_trailer_q) same_user_q <= same_so_far_q;
      else begin
        sharing_q     <= sharing_q && run == 4'd8;
        prefix_q      <= prefix_q + (sharing_q ? {3'b0, run} : 7'd0);
        user_length_q <= user_length_q + {3'b0, late_count_q == cip_pkg::MoreWords ? 4'd8 : late_count_q};
      end
    end
  end

  // ---- The block being filled.
  logic block_empty_q, flushing_q, visible_q, deletion_q, drop_shadowed_q, drop_vanished_q;
  cip_pkg::block_sum_t filled_q, estimate_q, size_q;
  cip_pkg::restart_count_t restarts_q, since_restart_q, restarts_after_q;
  cip_pkg::block_length_t entries_q;
  cip_pkg::lane_t header_bytes;
  logic restart, drop, flush, full;

  assign restart      = block_empty_q || since_restart_q == settings_i.restart_interval;
  assign drop         = drop_shadowed_q || drop_vanished_q;
  assign flush        = state_q == StIdle && !record_begin_i && finished_i && !flushing_q && record_ready_o;
  assign full         = estimate_q >= {1'b0, settings_i.block_bytes}
      || (restarts_q == cip_pkg::RestartsMax && since_restart_q == settings_i.restart_interval);
  assign header_bytes = record_i.value_length[20:14] != '0 ? 3'd5 : record_i.value_length[13:7] != '0 ? 3'd4 : 3'd3;

  // How the unshared user key is cut into chunks: what of its first word fits behind the header, the rest of that word
  // or the next one, and what comes after that.
  cip_pkg::user_length_t unshared_q, behind;
  cip_pkg::lane_count_t in_word_q, in_head_q, in_first, room;
  assign in_first = unshared_q < {3'b0, in_word_q} ? unshared_q[3:0] : in_word_q;
  assign room     = 4'd8 - {1'b0, command_q.header_bytes};
  assign behind   = unshared_q - {3'b0, in_word_q};

  // ---- What comes next.
  logic command_valid_q;
  cip_pkg::command_t command_q;
  assign command_valid_o = command_valid_q;
  assign command_o       = command_q;
  assign record_ready_o  = state_q == StIdle && !command_valid_q && !index_busy_i;
  assign shadowed_o      = state_q == StShare && drop_shadowed_q;
  assign vanished_o      = state_q == StShare && !drop_shadowed_q && drop_vanished_q;
  assign written_o       = state_q == StShare && !drop;
  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StIdle:  if (record_begin_i) state_d = StKey;
      StKey:   if (late_valid_q && late_trailer_q) state_d = StJudge;
      StJudge: state_d = StRule;
      StRule:  state_d = StShare;
      StShare: state_d = drop ? StGive : StSize;
      StSize:  state_d = StFit;
      StFit:   state_d = StGive;
      default: state_d = StIdle;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StIdle) index_q <= '0;
    else if (record_i.word_valid) index_q <= index_q + 1'b1;
    if (rst_i) begin
      state_q         <= StIdle;
      last_slot_q     <= 1'b0;
      seen_any_q      <= 1'b0;
      shadow_q        <= 1'b0;
      command_valid_q <= 1'b0;
      block_empty_q   <= 1'b1;
      last_length_q   <= '0;
      filled_q        <= '0;
      restarts_q      <= '0;
      since_restart_q <= '0;
      entries_q       <= '0;
      flushing_q      <= 1'b0;
    end else begin
      state_q <= state_d;
      if (command_ready_i) command_valid_q <= 1'b0;
      if (flush) flushing_q <= 1'b1;
      if (flush || state_q == StGive) command_valid_q <= 1'b1;
      unique case (state_q)
        StRule: begin
          shadow_q   <= visible_q;
          seen_any_q <= 1'b1;
        end
        StSize: begin
          filled_q        <= filled_q + size_q;
          restarts_q      <= restarts_after_q;
          since_restart_q <= restart ? 7'd1 : since_restart_q + 7'd1;
          entries_q       <= entries_q + 24'd1;
          block_empty_q   <= 1'b0;
          last_slot_q     <= !last_slot_q;
          last_length_q   <= user_length_q;
        end
        StGive: if (!command_q.drop && full) begin
          block_empty_q <= 1'b1;
          filled_q      <= '0;
          restarts_q    <= '0;
          entries_q     <= '0;
        end
        default: ;
      endcase
    end
  end

  logic error_valid_q;
  cip_pkg::error_code_e error_code_q;
  always_ff @(posedge clk_i) begin
    error_valid_q <= !rst_i && state_q == StJudge && (disorder_q
        || (trailer_q.kind != cip_pkg::KindDeletion && trailer_q.kind != cip_pkg::KindValue));
    error_code_q  <= disorder_q ? cip_pkg::ErrOrder : cip_pkg::ErrKind;
  end
  assign error_valid_o = error_valid_q;
  assign error_o.code  = error_code_q;
  assign error_o.id    = record_i.source;

  // ---- The record's measures, step by step, and the command made of them.
  always_ff @(posedge clk_i) begin
    unique case (state_q)
      // The end: what is in the block is written, if anything.
      StIdle: if (flush) begin
        command_q.is_record <= 1'b0;
        command_q.drop      <= 1'b0;
        command_q.cut       <= !block_empty_q;
      end
      StJudge: begin
        visible_q  <= trailer_q.number <= settings_i.snapshot;
        deletion_q <= trailer_q.kind == cip_pkg::KindDeletion;
        shared_q   <= prefix_q < last_length_q ? prefix_q : last_length_q;
      end
      StRule: begin
        drop_shadowed_q <= same_user_q && shadow_q;
        drop_vanished_q <= deletion_q && visible_q && settings_i.bottom;
        shared_q        <= restart ? 7'd0 : shared_q < user_length_q ? shared_q : user_length_q;
      end
      StShare: begin
        size_q <= {4'b0, record_i.value_length} + {18'b0, user_length_q} + {22'b0, header_bytes}
            + {18'b0, cip_pkg::UserTrailerBytes} - {18'b0, shared_q};
        command_q.is_record    <= 1'b1;
        command_q.drop         <= drop;
        command_q.cut          <= 1'b0;
        command_q.first        <= block_empty_q;
        command_q.restart      <= restart;
        command_q.slot         <= !last_slot_q;
        command_q.source       <= record_i.source;
        command_q.shared       <= shared_q;
        command_q.user_length  <= user_length_q;
        command_q.value_length <= record_i.value_length;
        command_q.offset       <= filled_q[cip_pkg::BlockLengthWidth-1:0];
        command_q.header_bytes <= header_bytes;
        unshared_q             <= user_length_q - shared_q;
        in_word_q              <= 4'd8 - {1'b0, shared_q[2:0]};
        restarts_after_q       <= restarts_q + {6'b0, restart};
      end
      StSize: begin
        in_word_q <= in_first;
        in_head_q <= in_first < room ? in_first : room;
      end
      StFit: begin
        estimate_q           <= filled_q + {16'b0, restarts_q, 2'b0} + cip_pkg::RestartBytes;
        command_q.head_key   <= in_head_q;
        command_q.head_bytes <= {1'b0, command_q.header_bytes} + in_head_q;
        if (in_word_q != in_head_q) begin
          command_q.next_key <= in_word_q - in_head_q;
          command_q.rest_key <= behind;
        end else begin
          command_q.next_key <= behind > 7'd8 ? 4'd8 : behind[3:0];
          command_q.rest_key <= behind > 7'd8 ? behind - 7'd8 : 7'd0;
        end
      end
      StGive: if (!command_q.drop) begin
        command_q.block_length <= estimate_q;
        command_q.entries      <= entries_q;
        command_q.cut          <= full;
      end
      default: ;
    endcase
  end
endmodule
